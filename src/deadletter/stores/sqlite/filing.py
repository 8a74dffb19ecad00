"""The operations of filing letters in a SQLite file."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from deadletter.core.grouping import GroupRule
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Known, story_seal
from deadletter.core.packing import pack_rest
from deadletter.core.replay_rules import sortable_position
from deadletter.office.transactions.operations import FiledCounts

from . import deaths, groups
from .audit import ADD, office_marks
from .letters_rows import HEAD, RARE, ROW, contents_of, head_of, rare_of, row_of
from .sql import Row, fetch, ids, in_chunks, micros, stored, write
from .verification import SqliteReads

_KNOWN: Final = f"{HEAD}, digest, history, frame, generation, spent, cap, died"
_LOOK_UP: Final = """
SELECT l.*, hex(c.digest) AS digest, c.history, c.frame, (
    SELECT cap FROM campaign_items i JOIN campaigns ON campaigns.seq = i.campaign
    WHERE i.letter = l.seq AND i.generation = l.replays AND l.replays > 0) AS cap,
    (SELECT hex(digest) FROM letter_originals o WHERE o.letter = l.seq) AS died
FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_KEPT: Final = "SELECT kept FROM office"
_COUNT: Final = f"""
UPDATE office SET
    kept = kept + ?, letter_marks = letter_marks + ? {ADD},
    deaths = deaths + ?, death_marks = death_marks + ? {ADD}
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
_ORIGINALS: Final = "INSERT INTO letter_originals (letter, digest, rest, body, seal) VALUES"
_RESOLVED: Final = "SELECT fingerprint FROM groups WHERE status = 'resolved' AND fingerprint IN"
_THERE: Final = "SELECT fingerprint FROM groups WHERE fingerprint IN"
_MADE: Final = "SELECT overflow, made FROM group_kinds WHERE day >= {} AND overflow IN"
_ADD_MADE: Final = "INSERT INTO group_kinds (overflow, day, made) VALUES"
# A clock that is behind at midnight must not begin a new day again.
_MADE_BEFORE: Final = """
ON CONFLICT (overflow) DO UPDATE SET
    made = excluded.made + CASE WHEN day >= excluded.day THEN made ELSE 0 END,
    day = max(day, excluded.day)
"""
_SEE: Final = "INSERT INTO versions (source, version, first_seen) VALUES"
_SEEN_BEFORE: Final = """
ON CONFLICT (source, version) DO UPDATE SET first_seen = excluded.first_seen
WHERE excluded.first_seen < versions.first_seen
"""


class SqliteFiling(SqliteReads):
    """The operations of filing on one transaction of a connection."""

    async def find_known(self, letters: Sequence[str]) -> dict[str, Known]:
        """Return the letters with these ids, each with the cap of its last campaign."""
        known: dict[str, Known] = {}
        for row in fetch(self._connection, _KNOWN, _LOOK_UP, (ids(letters),)):
            digest, history, frame, generation, spent, cap, died = row[-7:]
            head = head_of(row)
            known[head.id] = Known(
                seq=row[0],
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

    async def insert_letters(self, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
        """Write new letters, numbered on from those ever kept."""
        ((kept,),) = self._connection.execute(_KEPT).fetchall()
        numbered = list(enumerate(letters, kept + 1))
        _write_heads(self._connection, numbered)
        sealing = self.sealing
        contents = [contents_of(seq, known, letter, sealing) for seq, (known, letter) in numbered]
        write(self._connection, _CONTENTS, contents)
        edited = [one for one in numbered if one[1][1].original is not None]
        write(self._connection, _ORIGINALS, [self._original(*one) for one in edited])

    def _original(self, seq: int, filed: tuple[Known, DeadLetter]) -> Row:
        """The message that died, of a new letter that was edited elsewhere."""
        known, letter = filed
        died = letter.as_it_died
        rest = pack_rest(replace(letter, message=died))
        return (
            seq,
            known.digest,
            rest,
            died.body,
            self.sealing.message(known.head, known.digest, rest),
        )

    async def rewrite_letters(self, letters: Sequence[Known]) -> None:
        """Write the heads and stories of letters that died again."""
        heads = [(*row_of(one.seq, one), *rare_of(one.head)) for one in letters]
        write(self._connection, _WRITE, heads, _REWRITE)
        told: list[Row] = [
            (one.seq, stored(one.history), stored(one.frame), story_seal(one, self.sealing))
            for one in letters
        ]
        write(self._connection, _TELL_MORE, told, _TOLD)

    async def count_filed(self, counts: FiledCounts) -> list[str]:
        """Count what was filed; return the names of those groups that are resolved."""
        marks = office_marks(self._connection)
        died = {group.fingerprint: group.total for group in counts.groups}
        letters = (len(counts.new), marks.ids(counts.new))
        self._connection.execute(_COUNT, (*letters, sum(died.values()), marks.groups(died)))
        deaths.add(self._connection, counts.deaths)
        versions = [(stored(s), stored(v), micros(at)) for (s, v), at in counts.versions.items()]
        write(self._connection, _SEE, versions, _SEEN_BEFORE)
        groups.count(self._connection, counts.shifts, counts.groups)
        rows = in_chunks(self._connection, "fingerprint", _RESOLVED, [(name,) for name in died])
        return [row[0] for row in rows]

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return groups.rules(self._connection)

    async def find_new_groups(
        self, groups: Mapping[str, str], day: int
    ) -> tuple[list[str], dict[str, int]]:
        """Return which groups exist, and the number of groups made on a day by overflow group."""
        names = [(name,) for name in groups]
        there = [row[0] for row in in_chunks(self._connection, "fingerprint", _THERE, names)]
        if len(there) == len(groups):
            return there, {}
        kinds = [(kind,) for kind in sorted(set(groups.values()))]
        rows = in_chunks(self._connection, "overflow, made", _MADE.format(day), kinds)
        return there, {row[0]: row[1] for row in rows}

    async def add_new_groups(self, made: Mapping[str, int], day: int) -> None:
        """Add to the number of groups made on a day, by overflow group."""
        rows = [(name, day, n) for name, n in made.items()]
        write(self._connection, _ADD_MADE, rows, _MADE_BEFORE)

    async def find_versions(
        self, names: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], datetime]:
        """Return when versions, given by source and version, were first seen."""
        return groups.first_seen(self._connection, names)


def _write_heads(
    connection: sqlite3.Connection, letters: Sequence[tuple[int, tuple[Known, DeadLetter]]]
) -> None:
    # When a message was sent, and its place, are what letters are replayed in the
    # order of: they never change.
    heads = [
        (*row_of(seq, known), micros(letter.message.sent_at)) for seq, (known, letter) in letters
    ]
    # Mostly nobody has any of these, and to say so to SQLite takes its time.
    having_some = [
        letter
        for _, (_, letter) in letters
        if letter.position is not None
        or letter.head.business_key is not None
        or letter.head.trace_id is not None
    ]
    if having_some:
        rare = [
            (*rare_of(known.head), sortable_position(letter.position))
            for _, (known, letter) in letters
        ]
        rows = [(*head, *more) for head, more in zip(heads, rare, strict=True)]
        write(connection, _NEW_AND_RARE, rows)
    else:
        write(connection, _NEW, heads)
