"""Keeping letters: look up, decide by the rules of the core, write, count."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.group_limit import GroupLimit
from deadletter.core.keeping import (
    Filed,
    Known,
    failed_copies,
    file,
    reopened,
    story_seal,
)
from deadletter.core.letter import DeadLetter
from deadletter.core.replay_order import sortable_position
from deadletter.core.versions import first_seen
from deadletter.ports.letters import Kept, ReplaySettled

from .audit import append
from .group_kinds import limit_groups
from .group_standing import regress
from .groups import Shifts, count, shift
from .letters_edit import keep_originals
from .letters_replay import settle
from .letters_rows import HEAD, ROW, head_of, row_of
from .letters_whole import contents_of
from .marks import ADD, office_marks, sealing_of
from .regrouping import rules
from .rows import micros
from .sql import Row, fetch, ids, stored, write
from .versions import see

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
_WRITE: Final = f"INSERT INTO letters ({ROW}, sent_at, sent_place) VALUES"
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
    "INSERT INTO letter_contents"
    " (letter, digest, frame, rest, body, history, seal, story_seal) VALUES"
)
_TELL_MORE: Final = "WITH told (letter, history, frame, seal) AS (VALUES"
_TOLD: Final = """
) UPDATE letter_contents
SET history = told.history, frame = told.frame, story_seal = told.seal
FROM told WHERE letter_contents.letter = told.letter
"""


def keep(
    connection: sqlite3.Connection,
    letters: Sequence[DeadLetter],
    now: datetime,
    limit: GroupLimit,
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
    settle(
        connection,
        [
            ReplaySettled(copy.letter_id, copy.generation, Outcome.FAILED)
            for copy in failed_copies(filed)
        ],
        now,
    )
    return [
        Kept(one.id, is_new=one.before is None, conflict=one.conflict) for one in filed
    ]


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
    values = (
        *(len(new), marks.texts(dict.fromkeys(new, 1))),
        *(len(died), marks.texts(deaths)),
    )
    ((kept,),) = connection.execute(_NUMBER, values).fetchall()
    places.update(zip(new, range(kept - len(new) + 1, kept + 1), strict=True))


def _write(
    connection: sqlite3.Connection,
    after: Mapping[str, Known],
    new: Mapping[str, DeadLetter],
    places: Mapping[str, int],
) -> None:
    heads = [
        (*row_of(places[id_], known), *_sent(new.get(id_)))
        for id_, known in after.items()
    ]
    write(connection, _WRITE, heads, _REWRITE)
    sealing = sealing_of(connection)
    contents = [
        contents_of(places[id_], after[id_], letter, sealing)
        for id_, letter in new.items()
    ]
    write(connection, _CONTENTS, contents)
    keep_originals(
        connection,
        [(places[id_], after[id_], letter) for id_, letter in new.items()],
    )
    told: list[Row] = [
        (
            places[id_],
            stored(known.history),
            stored(known.frame),
            story_seal(known, sealing),
        )
        for id_, known in after.items()
        if id_ not in new
    ]
    write(connection, _TELL_MORE, told, _TOLD)


def _sent(letter: DeadLetter | None) -> Row:
    """What letters are replayed in the order of; it never changes."""
    if letter is None:
        return (None, None)
    return micros(letter.message.sent_at), sortable_position(letter.position)


def _shifts(filed: Sequence[Filed]) -> Shifts:
    shifts: Shifts = Counter()
    for one in filed:
        if one.before is not None and one.after is not None:
            shift(shifts, one.before.head, -1)
        if one.after is not None:
            shift(shifts, one.after.head, 1)
    return shifts
