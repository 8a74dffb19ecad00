"""The operations of office transactions on a PostgreSQL database."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.brake import Release, encode_release
from deadletter.core.failure.fingerprint import current
from deadletter.core.grouping import GroupLimit, GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.letter_filing import Known, needs_a_look
from deadletter.core.saved_search import SavedSearch, decode_search, encode_search
from deadletter.core.seals import MASK
from deadletter.core.text import stored
from deadletter.office.transactions.filing import file_letters
from deadletter.office.transactions.operations import Brief, FiledCounts, Revision, Shifts
from deadletter.ports.letters import Kept

from . import audit, deaths, groups
from .audit import check_fits, office_key, office_marks
from .database import Connection, SerializationFailure, Work
from .filing import PostgresqlFiling
from .letters_rows import CONTENTS, HEAD, JOINED, WHOLE, for_copies, head_of, whole
from .replays import BRIEF, ReplayOperations, brief_of

_GIVEN: Final = f"""
SELECT {BRIEF} FROM {JOINED} WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE OF m
"""  # noqa: S608 -- made of constants
_OVERDUE: Final = f"""
SELECT {BRIEF} FROM deadletter.letter_marks m JOIN deadletter.letters l
ON l.seq = m.letter WHERE m.state = $1 AND m.dead_at < $2
ORDER BY m.dead_at, m.letter LIMIT $3 FOR UPDATE OF m
"""  # noqa: S608 -- made of constants
_SET: Final = """
UPDATE deadletter.letter_marks SET state = $1, revision = revision + 1
WHERE letter = ANY($2)
"""
_DELETE: Final = """
WITH gone AS (DELETE FROM deadletter.letters WHERE seq = ANY($1)),
shredded AS (DELETE FROM deadletter.letter_contents WHERE letter = ANY($1)),
burnt AS (DELETE FROM deadletter.letter_originals WHERE letter = ANY($1))
DELETE FROM deadletter.letter_marks WHERE letter = ANY($1)
"""
_COUNT_DELETED: Final = {
    action: f"""
UPDATE deadletter.office SET {action}d = {action}d + $1,
    letter_marks = (letter_marks + $2) & {MASK}
WHERE marks_key = $3
"""  # noqa: S608 -- made of constants
    for action in ("purge", "expire")
}
_WHOLE: Final = f"""
SELECT {HEAD}, {CONTENTS} FROM {WHOLE} WHERE l.id = $1 FOR UPDATE OF l, m, c
"""  # noqa: S608 -- made of constants
_SET_ASIDE: Final = """
INSERT INTO deadletter.letter_originals
SELECT letter, digest, rest, body, seal
FROM deadletter.letter_contents WHERE letter = $1
ON CONFLICT DO NOTHING
"""
_PUT_MESSAGE: Final = """
WITH put AS (
    UPDATE deadletter.letter_contents
    SET digest = $2, rest = $3, body = $4, outgoing = $8, sent_at = $9,
        expires_at = $10, mark = $11, mark_key = $12, seal = $13
    WHERE letter = $1
), marked AS (
    UPDATE deadletter.letter_marks SET revision = $7 WHERE letter = $1
)
UPDATE deadletter.letters SET key = $5, size = $6 WHERE seq = $1
"""
_MEMBERS: Final = f"""
SELECT {HEAD} FROM {JOINED} WHERE l.id = ANY($1) AND m.fingerprint = $2
ORDER BY l.id FOR UPDATE OF l, m
"""  # noqa: S608 -- made of constants
_MOVE_MEMBERS: Final = """
WITH marked AS (
    UPDATE deadletter.letter_marks SET fingerprint = $1 WHERE letter = ANY($2)
)
UPDATE deadletter.letters SET fingerprint = $1 WHERE seq = ANY($2)
"""
_COUNT_DEATHS: Final = f"""
UPDATE deadletter.office SET deaths = deaths + $1, death_marks = (death_marks + $2) & {MASK}
WHERE marks_key = $3
"""  # noqa: S608 -- made of constants
_SHRINK: Final = """
UPDATE deadletter.groups SET total = greatest(total - $2, 0) WHERE fingerprint = $1
"""
_DELETE_GROUP: Final = """
WITH uncounted AS (DELETE FROM deadletter.group_states WHERE fingerprint = $1)
DELETE FROM deadletter.groups WHERE fingerprint = $1
"""
_SET_RULES: Final = """
INSERT INTO deadletter.group_rules (fingerprint, rules) VALUES ($1, $2)
ON CONFLICT (fingerprint) DO UPDATE SET rules = excluded.rules
"""
_NO_RULES: Final = "DELETE FROM deadletter.group_rules WHERE fingerprint = $1"
_RELEASE: Final = """
UPDATE deadletter.brake_windows SET release = $1
WHERE mailbox = $2 AND NOT is_closed RETURNING id
"""
_LOCK_SEARCHES: Final = "LOCK TABLE deadletter.searches IN SHARE ROW EXCLUSIVE MODE"
_SEARCHES: Final = 'SELECT search FROM deadletter.searches ORDER BY name COLLATE "C"'
_PUT_SEARCH: Final = """
INSERT INTO deadletter.searches (name, search) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET search = excluded.search
"""
_DELETE_SEARCH: Final = "DELETE FROM deadletter.searches WHERE name = $1"


class PostgresqlOperations(PostgresqlFiling, ReplayOperations):
    """One transaction of a connection."""

    async def find_briefs(self, ids: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order, locked."""
        rows = await self._connection.fetch(_GIVEN, [stored(id_) for id_ in ids])
        found = {brief.id: brief for brief in map(brief_of, rows)}
        return [found[id_] for id_ in dict.fromkeys(ids) if id_ in found]

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time, locked."""
        rows = await self._connection.fetch(_OVERDUE, state, before, limit)
        return [brief_of(row) for row in rows]

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number, locked."""
        row = await self._connection.fetchrow(_WHOLE, stored(id))
        return None if row is None else (row[0], whole(row))

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters."""
        await self._connection.execute(_SET, state, [brief.seq for brief in letters])

    async def replace_message(self, revision: Revision) -> None:
        """Write another message into a letter; keep the message that died aside."""
        await self._connection.execute(_SET_ASIDE, revision.seq)
        head, message = revision.head, revision.message
        await self._connection.execute(
            _PUT_MESSAGE,
            revision.seq,
            revision.digest,
            revision.rest,
            message.body,
            stored(head.key),
            head.size,
            head.revision,
            *for_copies(message, self.sealing),
            revision.seal,
        )

    async def delete_letters(self, letters: Sequence[Brief]) -> None:
        """Delete letters with their contents."""
        # Groups are locked before anything in them is counted.
        await groups.lock(self._connection, _group_names(letters))
        await self._connection.execute(_DELETE, [brief.seq for brief in letters])

    async def count_deleted(self, letters: Sequence[Brief], action: str) -> None:
        """Count deleted letters for the office."""
        marks = await office_marks(self._connection)
        total = marks.texts({brief.id: -1 for brief in letters})
        await self._add_to_office(_COUNT_DELETED[action], len(letters), total)

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change the number of letters by source, group and state."""
        await audit.count(self._connection, shifts)

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Seal entries and write them at the end of the audit."""
        await audit.append(self._connection, entries)

    async def find_standings(self, names: Sequence[str]) -> dict[str, Standing]:
        """Return the standings of groups that exist, locked."""
        return await groups.standings(self._connection, names)

    async def set_standing(self, name: str, standing: Standing) -> None:
        """Write another standing of a group."""
        await groups.put_standing(self._connection, name, standing)

    async def find_groups(self, names: Sequence[str], now: datetime) -> dict[str, Group]:
        """Return groups that exist, with their counts, locked."""
        return await groups.groups_named(self._connection, names, now)

    async def find_members(self, ids: Sequence[str], name: str) -> list[tuple[int, LetterHead]]:
        """Return the numbers and heads of those letters that are in a group, locked."""
        wanted = [stored(id_) for id_ in ids]
        rows = await self._connection.fetch(_MEMBERS, wanted, stored(name))
        return [(row[0], head_of(row)) for row in rows]

    async def move_members(self, letters: Sequence[tuple[int, LetterHead]], name: str) -> None:
        """Write another group into letters."""
        seqs = [seq for seq, _ in letters]
        await self._connection.execute(_MOVE_MEMBERS, stored(name), seqs)

    async def put_group(self, name: str, group: Group) -> None:
        """Write a group, new or again, without its counts by state."""
        await groups.put(self._connection, name, group)

    async def shrink_group(self, name: str, deaths: int) -> None:
        """Subtract deaths from the total of a group."""
        await self._connection.execute(_SHRINK, stored(name), deaths)

    async def delete_group(self, name: str) -> None:
        """Delete a group and its counts."""
        await self._connection.execute(_DELETE_GROUP, stored(name))

    async def clear_empty_groups(self, letters: Sequence[Brief]) -> list[str]:
        """Delete texts of groups whose last letters these were; return their names."""
        return await groups.blank(self._connection, _group_names(letters))

    async def count_deaths(self, deaths: Mapping[str, int]) -> None:
        """Add deaths by group to the sum that `verify` compares with."""
        marks = await office_marks(self._connection)
        total = sum(deaths.values())
        await self._add_to_office(_COUNT_DEATHS, total, marks.texts(deaths))

    async def rename_deaths(self, names: Mapping[str, str]) -> None:
        """Count the deaths over time of these groups for others."""
        await deaths.rename(self._connection, names)

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""
        if rules:
            written = msgspec.json.encode(rules)
            await self._connection.execute(_SET_RULES, stored(name), written)
        else:
            await self._connection.execute(_NO_RULES, stored(name))

    async def find_searches(self) -> list[SavedSearch]:
        """Return all saved searches, by name; a transaction that writes locks all of them."""
        if self._lock:
            await self._connection.execute(_LOCK_SEARCHES)
        return [decode_search(row[0]) for row in await self._connection.fetch(_SEARCHES)]

    async def put_search(self, search: SavedSearch) -> None:
        """Write a search, new or again."""
        await self._connection.execute(_PUT_SEARCH, stored(search.name), encode_search(search))

    async def delete_search(self, name: str) -> None:
        """Delete a search."""
        await self._connection.execute(_DELETE_SEARCH, stored(name))

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""
        written = encode_release(release)
        return len(await self._connection.fetch(_RELEASE, written, stored(mailbox)))

    async def _add_to_office(self, statement: str, *values: int) -> None:
        key = office_key(self._connection)
        done = await self._connection.execute(statement, *values, key)
        check_fits(self._connection, fits=done == "UPDATE 1")


def _group_names(letters: Sequence[Brief]) -> list[str]:
    return sorted({stored(brief.fingerprint) for brief in letters})


# Filing with few round trips: nearly always letters are new, and groups have no rules.


class _NewLetters(PostgresqlOperations):
    """Operations that look for nothing which a write finds out as well."""

    def __init__(self, connection: Connection, groups: Sequence[str]) -> None:
        super().__init__(connection)
        self._groups = groups  # of the letters, before any limit
        self.looks = False
        self.is_ruled = False

    async def find_known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Return no letters: `insert_letters` begins anew if one of them is there."""
        return await super().find_known(ids) if self.looks else {}

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return no rules: `count_filed` begins anew if there are some."""
        return await super().find_rules() if self.is_ruled else {}

    async def count_filed(self, counts: FiledCounts) -> list[str]:
        """Count what was filed; return the names of those groups that are resolved."""
        found = await self._count(counts, () if self.is_ruled else self._groups)
        if None in found and not self.is_ruled:
            raise _Ruled
        return [name for name in found if name is not None]


class _Ruled(Exception):
    """Rules apply to groups of these letters, and the transaction has not read them."""


def keeping(
    letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit, *, looks: bool = False
) -> Work[list[Kept]]:
    """
    Return the work of filing letters, all of them or none, in a transaction.

    It takes letters for new. Where that turns out wrong, or if `looks`, it looks first.
    """
    looks = looks or any(map(needs_a_look, letters))
    is_ruled = False
    groups = list({current(letter).head.fingerprint for letter in letters})

    async def work(connection: Connection) -> list[Kept]:
        nonlocal looks, is_ruled
        operations = _NewLetters(connection, groups)
        operations.looks, operations.is_ruled = looks, is_ruled
        try:
            return await file_letters(operations, letters, now, limit)
        except _Ruled:
            is_ruled = True
            raise SerializationFailure from None
        except SerializationFailure:
            looks = True
            raise

    return work
