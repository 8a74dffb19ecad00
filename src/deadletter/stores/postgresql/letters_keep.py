"""Keeping letters: look up, decide by the rules of the core, write, count."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.failure.fingerprint import current
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import (
    Filed,
    Filing,
    Known,
    failed_copies,
    filing,
    needs_a_look,
    reopened,
    story_seal,
)
from deadletter.core.query.versions import first_seen
from deadletter.core.seals import MASK
from deadletter.core.text import stored
from deadletter.office.transactions.operations import Shifts
from deadletter.office.transactions.outcomes import settle
from deadletter.ports.letters import Kept, ReplaySettled

from .audit import (
    OPENED,
    STATES,
    append,
    check_fits,
    counted,
    office_key,
    office_marks,
    opened,
    shift,
)
from .database import Again, Connection, Work, sealing_of
from .groups import died, limit_groups, regress, rows_of, rules
from .letter_operations import PostgresqlOperations
from .letters_edit import keep_originals
from .letters_rows import (
    FOR_COPIES,
    HEAD,
    MARKS,
    TYPES,
    WHOLE,
    columns,
    contents_of,
    head_of,
    row_of,
)
from .rows import octets

_AT_ONCE: Final = 16_000_000  # bytes in one statement; one letter may have more

# All three rows are locked, or what is read of one might be older than the others.
_LOOK_UP: Final = f"""
SELECT {HEAD}, c.digest, c.frame, c.history, l.generation, l.spent, (
    SELECT cap FROM deadletter.campaign_items i
    JOIN deadletter.campaigns g ON g.seq = i.campaign
    WHERE i.letter = l.seq AND i.generation = m.replays AND m.replays > 0),
    (SELECT digest FROM deadletter.letter_originals o WHERE o.letter = l.seq)
FROM {WHOLE} WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE OF l, m, c
"""  # noqa: S608 -- made of constants
_CONTENTS: Final = {
    **dict.fromkeys(("digest", "frame", "rest", "body", "history"), "bytea"),
    **dict.fromkeys(("seal", "story_seal"), "bytea"),
    **FOR_COPIES,
    "sent_place": "text",
}
_STATIC: Final = ", ".join(name for name in TYPES if name not in {"state", "replays", "revision"})


def _unnested(types: Mapping[str, str], first: int = 1) -> str:
    arrays = [f"${n}::{kind}[]" for n, kind in enumerate(types.values(), first)]
    return f"unnest({', '.join(arrays)}) AS g ({', '.join(types)})"


_INSERT: Final = f"""
WITH given AS MATERIALIZED (
    SELECT nextval('deadletter.letters_seq') AS seq, g.*
    FROM {_unnested(TYPES | _CONTENTS)}
), put AS (
    INSERT INTO deadletter.letters (seq, {_STATIC})
    SELECT seq, {_STATIC} FROM given ORDER BY id
    ON CONFLICT (id) DO NOTHING RETURNING 1
), marked AS (
    INSERT INTO deadletter.letter_marks (letter, {", ".join(MARKS)})
    SELECT seq, {", ".join(MARKS)} FROM given
), filled AS (
    INSERT INTO deadletter.letter_contents (letter, {", ".join(_CONTENTS)})
    SELECT seq, {", ".join(_CONTENTS)} FROM given
)
SELECT count(*) FROM put
"""  # noqa: S608 -- made of constants

# What can change of a letter that is there already.
_CHANGING: Final = (
    *("reason", "reason_text", "trouble", "code", "error_type", "error_text"),
    *("fingerprint", "attempts", "first_failed_at", "dead_at", "consumer", "version"),
    *("trace_id", "error_name", "generation", "spent"),
)
_NUMBER: Final = {"seq": "bigint"}
_TOLD: Final = {"frame": "bytea", "history": "bytea", "story_seal": "bytea"}
_REWRITE: Final = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM {_unnested(_NUMBER | TYPES | _TOLD)}
), marked AS (
    UPDATE deadletter.letter_marks t
    SET {", ".join(f"{name} = g.{name}" for name in MARKS)}
    FROM given g WHERE t.letter = g.seq AND t.letter = ANY($1)
), filled AS (
    UPDATE deadletter.letter_contents t
    SET frame = g.frame, history = g.history, story_seal = g.story_seal
    FROM given g WHERE t.letter = g.seq AND t.letter = ANY($1)
)
UPDATE deadletter.letters t
SET {", ".join(f"{name} = g.{name}" for name in _CHANGING)}
FROM given g WHERE t.seq = g.seq AND t.seq = ANY($1)
"""  # noqa: S608 -- made of constants
# Which of the groups stand as resolved, and so may have to be looked at again; NULL if
# there are rules about some of them, which are asked for only then.
_COUNT: Final = f"""
WITH died AS (
    INSERT INTO deadletter.groups AS t (fingerprint, source, error_type, text, frame,
        trouble, code, first_seen, last_seen, total, open)
    SELECT * FROM unnest($9::text[], $10::text[], $11::text[], $12::text[], $13::text[],
        $14::text[], $15::text[], $16::timestamptz[], $17::timestamptz[], $18::bigint[],
        $19::bigint[])
    ON CONFLICT (fingerprint) DO UPDATE SET
        (error_type, text, frame, trouble, code) = (
            SELECT excluded.error_type, excluded.text, excluded.frame,
                excluded.trouble, excluded.code
            WHERE excluded.last_seen >= t.last_seen
            UNION ALL SELECT t.error_type, t.text, t.frame, t.trouble, t.code LIMIT 1),
        first_seen = least(t.first_seen, excluded.first_seen),
        last_seen = greatest(t.last_seen, excluded.last_seen),
        total = t.total + excluded.total,
        open = t.open + excluded.open
    RETURNING fingerprint, status
), {OPENED}, {STATES}, kept AS (
    UPDATE deadletter.office SET kept = kept + $20,
        letter_marks = (letter_marks + $21) & {MASK},
        deaths = deaths + $22, death_marks = (death_marks + $23) & {MASK}
    WHERE marks_key = $28 RETURNING 1
), seen AS (
    INSERT INTO deadletter.versions AS t (source, version, first_seen)
    SELECT * FROM unnest($24::text[], $25::text[], $26::timestamptz[])
    ON CONFLICT (source, version) DO UPDATE SET first_seen = excluded.first_seen
    WHERE excluded.first_seen < t.first_seen
)
SELECT fingerprint, true FROM died WHERE status = 'resolved'
UNION ALL SELECT NULL, true FROM deadletter.group_rules
WHERE fingerprint = ANY($9) OR fingerprint = ANY($27)
UNION ALL SELECT NULL, false WHERE NOT EXISTS (SELECT 1 FROM kept)
"""  # noqa: S608 -- made of constants


def keeping(
    letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit, *, looks: bool = False
) -> Work[list[Kept]]:
    """
    What keeps letters, all of them or none, in a transaction.

    Most are new. Where that turns out wrong, or when it is told to, it looks first.
    """
    looks = looks or any(map(needs_a_look, letters))
    ruled = False

    async def work(connection: Connection) -> list[Kept]:
        nonlocal looks, ruled
        try:
            found = await rules(connection) if ruled else None
            within = await limit_groups(connection, letters, now, limit, found)
            own = _diverted(letters, within) if found is None else None
            return await _keep(connection, within, now, looks=looks, unruled=own)
        except _Ruled:
            ruled = True
            raise Again from None
        except Again:
            looks = True
            raise

    return work


def _diverted(letters: Sequence[DeadLetter], within: Sequence[DeadLetter]) -> list[str]:
    """The names of groups that letters were kept out of; there may be rules on them."""
    own = [current(letter).head.fingerprint for letter in letters]
    pairs = zip(own, within, strict=True)
    return [name for name, after in pairs if name != after.head.fingerprint]


class _Ruled(Exception):
    """There are rules about groups of these letters, and nobody has read them."""


async def _keep(
    connection: Connection,
    letters: Sequence[DeadLetter],
    now: datetime,
    *,
    looks: bool,
    unruled: Sequence[str] | None,
) -> list[Kept]:
    """Keep them; `unruled` are names of diverted ones, if no rules were read."""
    places: dict[str, int] = {}
    filed = await _file(connection, filing(letters), places, looks=looks)
    after = {one.id: one.after for one in filed if one.after is not None}
    if after:
        new = {one.id: one.letter for one in filed if one.before is None}
        await _insert(connection, [(after[id_], new[id_]) for id_ in new])
        await _rewrite(connection, [after[id_] for id_ in after.keys() - new], places)
        said = await _count(connection, filed, new, now, unruled or ())
        if None in said and unruled is not None:
            raise _Ruled
        await append(connection, reopened(filed, now))
    news = [
        ReplaySettled(copy.letter_id, copy.generation, Outcome.FAILED)
        for copy in failed_copies(filed)
    ]
    if news:
        await settle(PostgresqlOperations(connection), news, now)
    return [Kept(one.id, is_new=one.before is None, conflict=one.conflict) for one in filed]


async def _file(
    connection: Connection, steps: Filing, places: dict[str, int], *, looks: bool
) -> list[Filed]:
    wanted = next(steps)
    while True:
        known = await _look_up(connection, wanted, places) if looks else {}
        try:
            wanted = steps.send(known)
        except StopIteration as end:
            filed: list[Filed] = end.value
            return filed


async def _look_up(
    connection: Connection, wanted: Iterable[str], places: dict[str, int]
) -> Mapping[str, Known]:
    known: dict[str, Known] = {}
    for row in await connection.fetch(_LOOK_UP, [stored(id_) for id_ in wanted]):
        digest, frame, history, generation, spent, cap, died = row[-7:]
        head = head_of(row)
        places[head.id] = row[0]
        known[head.id] = Known(
            head=head,
            digest=died or digest,
            edited=digest if died else None,
            history=history.decode("utf-8", "surrogatepass"),
            frame=frame.decode("utf-8", "surrogatepass"),
            generation=generation,
            spent=spent,
            cap=cap,
        )
    return known


async def _insert(connection: Connection, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
    sealing = sealing_of(connection)
    for part in _parts(letters):
        rows = [(*row_of(one), *contents_of(one, letter, sealing)) for one, letter in part]
        if await connection.fetchval(_INSERT, *columns(rows, 0)) != len(part):
            raise Again
    await keep_originals(connection, letters)


async def _rewrite(
    connection: Connection, letters: Sequence[Known], places: Mapping[str, int]
) -> None:
    if not letters:
        return
    sealing = sealing_of(connection)
    rows = [
        (
            places[one.head.id],
            *row_of(one),
            octets(one.frame),
            octets(one.history),
            story_seal(one, sealing),
        )
        for one in letters
    ]
    await connection.execute(_REWRITE, *columns(rows, 0))


async def _count(
    connection: Connection,
    filed: Sequence[Filed],
    new: Iterable[str],
    now: datetime,
    diverted: Sequence[str],
) -> list[str | None]:
    shifts: Shifts = Counter()
    deaths: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for one in filed:
        if one.before is not None and one.after is not None:
            shift(shifts, one.before.head, -1)
        if one.after is not None:
            shift(shifts, one.after.head, 1)
        if one.died:
            deaths[one.letter.head.fingerprint].append(one.letter)
    states, by_open = counted(shifts)
    died_of = columns(
        sorted((*row, by_open.pop(row[0], 0)) for row in map(died, deaths.values())), 11
    )
    counts = {name: len(of) for name, of in deaths.items()}
    letters, marks = dict.fromkeys(new), await office_marks(connection)
    numbers = (*(len(letters), marks.ids(letters)), *(sum(counts.values()), marks.groups(counts)))
    heads = {name: [one.head for one in of] for name, of in deaths.items()}
    seen = rows_of(first_seen(chain.from_iterable(heads.values())))
    asked = [stored(name) for name in diverted]
    key = office_key(connection)
    values = (*states, *opened(by_open), *died_of, *numbers, *seen, asked, key)
    rows = await connection.fetch(_COUNT, *values)
    check_fits(connection, fits=all(fits for _, fits in rows))
    said = [fingerprint for fingerprint, _ in rows]
    if any(said):
        await regress(connection, heads, now)
    return said


def _parts(
    letters: Sequence[tuple[Known, DeadLetter]],
) -> Iterator[Sequence[tuple[Known, DeadLetter]]]:
    start = size = 0
    for place, (known, letter) in enumerate(letters):
        more = len(letter.message.body) + len(known.history)
        size += more
        if size > _AT_ONCE and place > start:
            yield letters[start:place]
            start, size = place, more
    if letters:
        yield letters[start:]
