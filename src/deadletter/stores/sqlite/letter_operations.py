"""The operations of office transactions on a SQLite file; none of them ever waits."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.brake import Release, encode_release
from deadletter.core.grouping import GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.saved_search import SavedSearch, decode_search, encode_search
from deadletter.office.transactions.operations import Brief, Revision, Shifts

from . import audit, deaths, groups
from .audit import ADD, office_marks
from .filing import SqliteFiling
from .letters_rows import HEAD, head_of, whole
from .replays import ReplayOperations, brief_of
from .sql import fetch, ids, micros, numbers, stored

_BRIEF: Final = "seq, id, source, fingerprint, state, replays"
_GIVEN: Final = """
SELECT l.seq, l.id, l.source, l.fingerprint, l.state, l.replays
FROM json_each(?) CROSS JOIN letters l ON l.id = value
"""
_OVERDUE: Final = """
SELECT * FROM letters WHERE state = ? AND dead_at < ? ORDER BY dead_at, seq LIMIT ?
"""
_SET: Final = """
UPDATE letters SET state = ?, revision = revision + 1
WHERE seq IN (SELECT value FROM json_each(?))
"""
_DELETE: Final = (
    "DELETE FROM letters WHERE seq IN (SELECT value FROM json_each(?))",
    "DELETE FROM letter_contents WHERE letter IN (SELECT value FROM json_each(?))",
    "DELETE FROM letter_originals WHERE letter IN (SELECT value FROM json_each(?))",
)
_COUNT_DELETED: Final = {
    action: f"""
UPDATE office SET {action}d = {action}d + ?, letter_marks = letter_marks + ? {ADD}
"""  # noqa: S608 -- made of constants
    for action in ("purge", "expire")
}
_WHOLE: Final = """
SELECT l.*, c.*, l.seq AS tag FROM json_each(?) CROSS JOIN letters l ON l.id = value
CROSS JOIN letter_contents c ON c.letter = l.seq
"""
_SET_ASIDE: Final = """
INSERT INTO letter_originals
SELECT letter, digest, rest, body, seal FROM letter_contents
WHERE letter = ? ON CONFLICT DO NOTHING
"""
_PUT_MESSAGE: Final = """
UPDATE letter_contents SET digest = ?, rest = ?, body = ?, seal = ? WHERE letter = ?
"""
_PUT_HEAD: Final = "UPDATE letters SET key = ?, size = ?, revision = ? WHERE seq = ?"
_MEMBERS: Final = """
SELECT l.* FROM json_each(?) CROSS JOIN letters l ON l.id = value
WHERE l.fingerprint = ?
"""
_MOVE_MEMBERS: Final = """
UPDATE letters SET fingerprint = ? WHERE seq IN (SELECT value FROM json_each(?))
"""
_SHRINK: Final = "UPDATE groups SET total = max(total - ?, 0) WHERE fingerprint = ?"
_DELETE_GROUP: Final = (
    "DELETE FROM groups WHERE fingerprint = ?",
    "DELETE FROM group_states WHERE fingerprint = ?",
)
_SET_RULES: Final = """
INSERT INTO group_rules (fingerprint, rules) VALUES (?, ?)
ON CONFLICT (fingerprint) DO UPDATE SET rules = excluded.rules
"""
_NO_RULES: Final = "DELETE FROM group_rules WHERE fingerprint = ?"
_RELEASE: Final = """
UPDATE brake_windows SET release = ? WHERE mailbox = ? AND NOT is_closed
"""
_SEARCHES: Final = "SELECT search FROM searches ORDER BY name"
_PUT_SEARCH: Final = """
INSERT INTO searches (name, search) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET search = excluded.search
"""
_DELETE_SEARCH: Final = "DELETE FROM searches WHERE name = ?"


class SqliteOperations(SqliteFiling, ReplayOperations):
    """One transaction of a connection."""

    async def find_briefs(self, letters: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order."""
        rows = fetch(self._connection, _BRIEF, _GIVEN, (ids(letters),))
        return [brief_of(row) for row in rows]

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time."""
        rows = fetch(self._connection, _BRIEF, _OVERDUE, (state.value, micros(before), limit))
        return [brief_of(row) for row in rows]

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number."""
        found = whole(self._connection, _WHOLE, (ids([id]),))
        return found[0] if found else None

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters."""
        seqs = numbers([brief.seq for brief in letters])
        self._connection.execute(_SET, (state.value, seqs))

    async def replace_message(self, revision: Revision) -> None:
        """Write another message into a letter; keep the message that died aside."""
        seq, head = revision.seq, revision.head
        self._connection.execute(_SET_ASIDE, (seq,))
        contents = (revision.digest, revision.rest, revision.message.body, revision.seal, seq)
        self._connection.execute(_PUT_MESSAGE, contents)
        self._connection.execute(_PUT_HEAD, (stored(head.key), head.size, head.revision, seq))

    async def delete_letters(self, letters: Sequence[Brief]) -> None:
        """Delete letters with their contents."""
        seqs = numbers(brief.seq for brief in letters)
        # Large contents otherwise stay in the file until their place is used again.
        self._connection.execute("PRAGMA secure_delete = ON").fetchall()
        for statement in _DELETE:
            self._connection.execute(statement, (seqs,))
        self._connection.execute("PRAGMA secure_delete = FAST").fetchall()

    async def count_deleted(self, letters: Sequence[Brief], action: str) -> None:
        """Count deleted letters for the office."""
        marks = office_marks(self._connection).texts({brief.id: -1 for brief in letters})
        self._connection.execute(_COUNT_DELETED[action], (len(letters), marks))

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change the number of letters by source, group and state."""
        groups.count(self._connection, shifts)

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Seal entries and write them at the end of the audit."""
        audit.append(self._connection, entries)

    async def find_standings(self, names: Sequence[str]) -> dict[str, Standing]:
        """Return the standings of groups that exist."""
        return groups.standings(self._connection, names)

    async def set_standing(self, name: str, standing: Standing) -> None:
        """Write another standing of a group."""
        groups.put_standing(self._connection, name, standing)

    async def find_groups(self, names: Sequence[str], now: datetime) -> dict[str, Group]:
        """Return groups that exist, with their counts."""
        found = {name: groups.group_named(self._connection, name, now) for name in names}
        return {name: group for name, group in found.items() if group is not None}

    async def find_members(self, letters: Sequence[str], name: str) -> list[tuple[int, LetterHead]]:
        """Return the numbers and heads of those letters that are in a group."""
        rows = fetch(self._connection, HEAD, _MEMBERS, (ids(letters), stored(name)))
        return [(row[0], head_of(row)) for row in rows]

    async def move_members(self, letters: Sequence[tuple[int, LetterHead]], name: str) -> None:
        """Write another group into letters."""
        self._connection.execute(_MOVE_MEMBERS, (stored(name), numbers(seq for seq, _ in letters)))

    async def put_group(self, name: str, group: Group) -> None:
        """Write a group, new or again, without its counts by state."""
        groups.put(self._connection, name, group)

    async def shrink_group(self, name: str, deaths: int) -> None:
        """Subtract deaths from the total of a group."""
        self._connection.execute(_SHRINK, (deaths, stored(name)))

    async def delete_group(self, name: str) -> None:
        """Delete a group and its counts."""
        for statement in _DELETE_GROUP:
            self._connection.execute(statement, (stored(name),))

    async def clear_empty_groups(self, letters: Sequence[Brief]) -> list[str]:
        """Delete texts of groups whose last letters these were; return their names."""
        self._connection.execute("PRAGMA secure_delete = ON").fetchall()
        names = sorted({brief.fingerprint for brief in letters})
        cleared = groups.blank(self._connection, names)
        self._connection.execute("PRAGMA secure_delete = FAST").fetchall()
        return cleared

    async def count_deaths(self, deaths: Mapping[str, int]) -> None:
        """Add deaths by group to the sum that `verify` compares with."""
        groups.note_deaths(self._connection, deaths)

    async def rename_deaths(self, names: Mapping[str, str]) -> None:
        """Count the deaths over time of these groups for others."""
        deaths.rename(self._connection, names)

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""
        if rules:
            values = (stored(name), msgspec.json.encode(rules).decode())
            self._connection.execute(_SET_RULES, values)
        else:
            self._connection.execute(_NO_RULES, (stored(name),))

    async def find_searches(self) -> list[SavedSearch]:
        """Return all saved searches, by name."""
        return [decode_search(search) for (search,) in self._connection.execute(_SEARCHES)]

    async def put_search(self, search: SavedSearch) -> None:
        """Write a search, new or again."""
        values = (stored(search.name), encode_search(search))
        self._connection.execute(_PUT_SEARCH, values)

    async def delete_search(self, name: str) -> None:
        """Delete a search."""
        self._connection.execute(_DELETE_SEARCH, (stored(name),))

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""
        values = (encode_release(release), stored(mailbox))
        return self._connection.execute(_RELEASE, values).rowcount
