"""The operations of filing letters in a PostgreSQL database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from deadletter.core.grouping import GroupRule
from deadletter.core.letter import DeadLetter, Group
from deadletter.core.letter_filing import Known, story_seal
from deadletter.core.packing import pack_rest
from deadletter.core.seals import MASK
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import FiledCounts

from . import deaths, groups
from .audit import OPENED, STATES, check_fits, counted, office_key, office_marks, opened
from .database import SerializationFailure
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
from .rows import octets, storable
from .verification import PostgresqlReads

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
_DEATHS: Final = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(deaths.COLUMNS, 29))
# Returns the groups that are resolved; NULL if there are rules about some of them or
# about other groups that are asked for; and whether the sums are made with our key.
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
), died_then AS (
{deaths.ADD.format(_DEATHS)}
)
SELECT fingerprint, true FROM died WHERE status = 'resolved'
UNION ALL SELECT NULL, true FROM deadletter.group_rules
WHERE fingerprint = ANY($9) OR fingerprint = ANY($27)
UNION ALL SELECT NULL, false WHERE NOT EXISTS (SELECT 1 FROM kept)
"""  # noqa: S608 -- made of constants
_ORIGINAL: Final = """
INSERT INTO deadletter.letter_originals (letter, digest, rest, body, seal)
SELECT seq, $2, $3, $4, $5 FROM deadletter.letters WHERE id = $1
"""
# Locked until the end: of two who make groups of a kind, the later one waits.
# A clock that is behind at midnight must not begin a new day again.
_MADE: Final = """
INSERT INTO deadletter.group_kinds AS t (overflow, day, made)
SELECT name, $2, 0 FROM unnest($1::text[]) AS name ORDER BY name
ON CONFLICT (overflow) DO UPDATE SET
    made = CASE WHEN t.day >= excluded.day THEN t.made ELSE 0 END,
    day = greatest(t.day, excluded.day)
RETURNING overflow, made
"""
_THERE: Final = "SELECT fingerprint FROM deadletter.groups WHERE fingerprint = ANY($1)"
_ADD_MADE: Final = """
UPDATE deadletter.group_kinds t SET made = t.made + g.n
FROM unnest($1::text[], $2::integer[]) AS g (overflow, n)
WHERE t.overflow = g.overflow
"""


class PostgresqlFiling(PostgresqlReads):
    """The operations of filing in one transaction of a connection."""

    async def find_known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Return the letters with these ids, locked, each with the cap of its last campaign."""
        known: dict[str, Known] = {}
        for row in await self._connection.fetch(_LOOK_UP, [stored(id_) for id_ in ids]):
            digest, frame, history, generation, spent, cap, died = row[-7:]
            head = head_of(row)
            known[head.id] = Known(
                seq=row[0],
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

    async def insert_letters(self, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
        """Write new letters with their contents; begin anew if one of them is there."""
        sealing = self.sealing
        for part in _parts(letters):
            rows = [(*row_of(one), *contents_of(one, letter, sealing)) for one, letter in part]
            if await self._connection.fetchval(_INSERT, *columns(rows, 0)) != len(part):
                raise SerializationFailure
        for known, letter in letters:
            if letter.original is not None:  # it was edited elsewhere
                rest = pack_rest(replace(letter, message=letter.original))
                seal = sealing.message(known.head, known.digest, rest)
                values = (known.digest, rest, letter.original.body, seal)
                await self._connection.execute(_ORIGINAL, stored(known.head.id), *values)

    async def rewrite_letters(self, letters: Sequence[Known]) -> None:
        """Write the heads and stories of letters that died again."""
        rows = [
            (
                *(one.seq, *row_of(one), octets(one.frame), octets(one.history)),
                story_seal(one, self.sealing),
            )
            for one in letters
        ]
        await self._connection.execute(_REWRITE, *columns(rows, 0))

    async def count_filed(self, counts: FiledCounts) -> list[str]:
        """Count what was filed; return the names of those groups that are resolved."""
        return [name for name in await self._count(counts, ()) if name is not None]

    async def _count(self, counts: FiledCounts, asked: Sequence[str]) -> list[str | None]:
        """Count what was filed, as `_COUNT` says; rules are looked for about groups `asked`."""
        states, by_open = counted(counts.shifts)
        rows = [_died(group) for group in counts.groups]
        died = columns(sorted((*row, by_open.pop(row[0], 0)) for row in rows), 11)
        totals = {group.fingerprint: group.total for group in counts.groups}
        marks = await office_marks(self._connection)
        letters = (len(counts.new), marks.ids(dict.fromkeys(counts.new)))
        numbers = (*letters, sum(totals.values()), marks.groups(totals))
        versions = [(stored(source), stored(v), at) for (source, v), at in counts.versions.items()]
        values = (*states, *opened(by_open), *died, *numbers, *columns(sorted(versions), 3))
        key = office_key(self._connection)
        named = [stored(name) for name in asked]
        over_time = deaths.columns_of(counts.deaths)
        found = await self._connection.fetch(_COUNT, *values, named, key, *over_time)
        check_fits(self._connection, fits=all(fits for _, fits in found))
        return [shown(name) for name, _ in found]

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return await groups.rules(self._connection)

    async def find_new_groups(
        self, groups: Mapping[str, str], day: int
    ) -> tuple[list[str], dict[str, int]]:
        """Return which groups exist, and the number of groups made on a day by overflow group."""
        there = await self._there(list(groups))
        new = [name for name in groups if name not in there]
        if not new:
            return there, {}
        kinds = sorted({groups[name] for name in new})
        made = dict(await self._connection.fetch(_MADE, kinds, day))
        # Whoever had the lock may have made some of them meanwhile.
        return [*there, *await self._there(new)], made

    async def _there(self, names: Sequence[str]) -> list[str]:
        rows = await self._connection.fetch(_THERE, [stored(name) for name in names])
        return [shown(row[0]) for row in rows]

    async def add_new_groups(self, made: Mapping[str, int], day: int) -> None:
        """Add to the number of groups made on a day, by overflow group."""
        await self._connection.execute(_ADD_MADE, list(made), list(made.values()))

    async def find_versions(
        self, names: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], datetime]:
        """Return when versions, given by source and version, were first seen."""
        return await groups.first_seen(self._connection, names)


def _died(group: Group) -> Sequence[Any]:
    return storable(
        (
            *(group.fingerprint, group.source, group.error_type, group.text, group.frame),
            *(group.trouble, group.code, group.first_seen, group.last_seen, group.total),
        )
    )


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
