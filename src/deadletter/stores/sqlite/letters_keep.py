"""Keeping letters: look up, decide by the rules of the core, write, count."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Filed, Known, failed_copies, file, reopened, story_seal
from deadletter.core.query.versions import first_seen
from deadletter.core.replay_rules import sortable_position
from deadletter.office.transactions.operations import Shifts, run_now
from deadletter.office.transactions.outcomes import settle
from deadletter.ports.letters import Kept, ReplaySettled

from .audit import ADD, append, office_marks, sealing_of
from .groups import count, limit_groups, regress, rules, see, shift
from .letter_operations import SqliteOperations
from .letters_edit import keep_originals
from .letters_rows import HEAD, RARE, ROW, contents_of, head_of, rare_of, row_of
from .sql import Row, fetch, ids, micros, stored, write

_KNOWN: Final = f"{HEAD}, digest, history, frame, generation, spent, cap, died"
_LOOK_UP: Final = """
SELECT l.*, hex(c.digest) AS digest, c.history, c.frame, (
    SELECT cap FROM campaign_items i JOIN campaigns ON campaigns.seq = i.campaign
    WHERE i.letter = l.seq AND i.generation = l.replays AND l.replays > 0) AS cap,
    (SELECT hex(digest) FROM letter_originals o WHERE o.letter = l.seq) AS died
FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_NUMBER: Final = f"""
UPDATE office SET
    kept = kept + ?, letter_marks = letter_marks + ? {ADD},
    deaths = deaths + ?, death_marks = death_marks + ? {ADD}
RETURNING kept
"""  # noqa: S608 -- made of constants
# What fails half-way is undone with the job, so that statements need not be able to
# undo themselves: SQLite would copy each page before they change it.
_NEW: Final = f"INSERT OR FAIL INTO letters ({ROW}, sent_at) VALUES"
_NEW_AND_RARE: Final = f"INSERT OR FAIL INTO letters ({ROW}, sent_at, {RARE}, sent_place) VALUES"
_WRITE: Final = f"INSERT INTO letters ({ROW}, {RARE}) VALUES"
# What can change of a letter that is there already.
_REWRITE: Final = """
ON CONFLICT (seq) DO UPDATE SET
    (state, reason, reason_text, trouble, code, error_type, error_text, fingerprint,
     attempts, first_failed_at, dead_at, consumer, version, trace_id, revision,
     error_name, generation, spent)
    = (excluded.state, excluded.reason, excluded.reason_text, excluded.trouble,
       excluded.code, excluded.error_type, excluded.error_text, excluded.fingerprint,
       excluded.attempts, excluded.first_failed_at, excluded.dead_at,
       excluded.consumer, excluded.version, excluded.trace_id, excluded.revision,
       excluded.error_name, excluded.generation, excluded.spent)
"""
_CONTENTS: Final = (
    "INSERT OR FAIL INTO letter_contents"
    " (letter, digest, frame, rest, body, history, seal, story_seal) VALUES"
)
_TELL_MORE: Final = "WITH told (letter, history, frame, seal) AS (VALUES"
_TOLD: Final = """
) UPDATE letter_contents
SET history = told.history, frame = told.frame, story_seal = told.seal
FROM told WHERE letter_contents.letter = told.letter
"""


def keep(
    connection: sqlite3.Connection, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit
) -> list[Kept]:
    """Keep letters, all of them or none."""
    places: dict[str, int] = {}
    letters = limit_groups(connection, letters, now, limit, rules(connection))
    filed = file(letters, lambda wanted: _look_up(connection, wanted, places))
    after = {one.id: one.after for one in filed if one.after is not None}
    if after:
        new = {one.id: one.letter for one in filed if one.before is None}
        died = [one.letter for one in filed if one.died]
        _number(connection, list(new), died, places)
        _write(connection, after, new, places)
        see(connection, first_seen(letter.head for letter in died))
        regress(connection, died, now)
        count(connection, _shifts(filed), died)
        append(connection, reopened(filed, now))
    failed = [
        ReplaySettled(copy.letter_id, copy.generation, Outcome.FAILED)
        for copy in failed_copies(filed)
    ]
    if failed:
        run_now(settle(SqliteOperations(connection), failed, now))
    return [Kept(one.id, is_new=one.before is None, conflict=one.conflict) for one in filed]


def _look_up(
    connection: sqlite3.Connection, wanted: Iterable[str], places: dict[str, int]
) -> Mapping[str, Known]:
    known: dict[str, Known] = {}
    for row in fetch(connection, _KNOWN, _LOOK_UP, (ids(wanted),)):
        digest, history, frame, generation, spent, cap, died = row[-7:]
        head = head_of(row)
        places[head.id] = row[0]
        known[head.id] = Known(
            head=head,
            digest=bytes.fromhex(died or digest),
            edited=bytes.fromhex(digest) if died else None,
            history=history,
            frame=frame,
            generation=generation,
            spent=spent,
            cap=cap,
        )
    return known


def _number(
    connection: sqlite3.Connection,
    new: Sequence[str],
    died: Sequence[DeadLetter],
    places: dict[str, int],
) -> None:
    """Give new letters their numbers, and count them and the deaths of the batch."""
    marks = office_marks(connection)
    deaths = Counter([letter.head.fingerprint for letter in died])
    values = (*(len(new), marks.ids(new)), *(len(died), marks.groups(deaths)))
    ((kept,),) = connection.execute(_NUMBER, values).fetchall()
    places.update(zip(new, range(kept - len(new) + 1, kept + 1), strict=True))


def _write(
    connection: sqlite3.Connection,
    after: Mapping[str, Known],
    new: Mapping[str, DeadLetter],
    places: Mapping[str, int],
) -> None:
    _write_new(connection, after, new, places)
    changed = {id_: known for id_, known in after.items() if id_ not in new}
    heads = [(*row_of(places[id_], known), *rare_of(known.head)) for id_, known in changed.items()]
    write(connection, _WRITE, heads, _REWRITE)
    sealing = sealing_of(connection)
    contents = [
        contents_of(places[id_], after[id_], letter, sealing) for id_, letter in new.items()
    ]
    write(connection, _CONTENTS, contents)
    keep_originals(connection, [(places[id_], after[id_], letter) for id_, letter in new.items()])
    told: list[Row] = [
        (places[id_], stored(known.history), stored(known.frame), story_seal(known, sealing))
        for id_, known in changed.items()
    ]
    write(connection, _TELL_MORE, told, _TOLD)


def _write_new(
    connection: sqlite3.Connection,
    after: Mapping[str, Known],
    new: Mapping[str, DeadLetter],
    places: Mapping[str, int],
) -> None:
    # When a message was sent, and its place, are what letters are replayed in the
    # order of: they never change.
    heads = [
        (*row_of(places[id_], after[id_]), micros(letter.message.sent_at))
        for id_, letter in new.items()
    ]
    # Mostly nobody has any of these, and to say so to SQLite takes its time.
    having_some = [
        letter
        for letter in new.values()
        if letter.position is not None
        or letter.head.business_key is not None
        or letter.head.trace_id is not None
    ]
    if having_some:
        rare = [
            (*rare_of(after[id_].head), sortable_position(letter.position))
            for id_, letter in new.items()
        ]
        rows = [(*head, *more) for head, more in zip(heads, rare, strict=True)]
        write(connection, _NEW_AND_RARE, rows)
    else:
        write(connection, _NEW, heads)


def _shifts(filed: Sequence[Filed]) -> Shifts:
    heads = [one.after.head for one in filed if one.after is not None]
    shifts = Counter([(head.source, head.fingerprint, head.state) for head in heads])
    for one in filed:
        if one.before is not None and one.after is not None:
            shift(shifts, one.before.head, -1)
    return shifts
