"""Reads of a whole SQLite office that verification compares, and the seals it renews."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Final

from deadletter.core.audit import ItemSum, SealedLetter, SealedMessage, Sums
from deadletter.core.letter import AuditEntry
from deadletter.core.seals import NAMED, Ends, Sealing, Start
from deadletter.office.transactions.operations import Counts, OfficeNumbers, SealedLetters, Seals

from . import audit, deaths
from .letters_rows import HEAD, HEADS, head_of
from .sql import Row, fetch_odd, shown

_SLICE: Final = 500  # letters at a time
_PAGE: Final = 5_000  # ids at a time

_OFFICE: Final = """
SELECT kept, deaths, death_marks, letter_marks, marks_key,
    audit_seq, audit_hash, purged, expired FROM office
"""
# Not indexed, because reading all letters in their own order is the fastest way.
_LETTERS: Final = """
SELECT source, fingerprint, state, count(*) FROM letters NOT INDEXED GROUP BY 1, 2, 3
"""
_BY_SOURCE: Final = "SELECT source, state, n FROM source_states"
_BY_GROUP: Final = """
SELECT fingerprint, state, n FROM group_states
UNION ALL SELECT fingerprint, 'open', open FROM groups
"""
# Each sentence is about what its query finds.
_ODDITIES: Final = {
    "letter {0} has no contents": """
        SELECT id FROM letters NOT INDEXED
        WHERE NOT EXISTS (SELECT 1 FROM letter_contents WHERE letter = seq)
    """,
    "contents {0} belong to no letter": """
        SELECT letter FROM letter_contents
        WHERE NOT EXISTS (SELECT 1 FROM letters WHERE seq = letter)
    """,
    "original {0} belongs to no letter": """
        SELECT letter FROM letter_originals
        WHERE NOT EXISTS (SELECT 1 FROM letters WHERE seq = letter)
    """,
    "campaign {0} says it has {1} letters, but it has {2}": """
        SELECT id, items, count(ordinal)
        FROM campaigns LEFT JOIN campaign_items ON campaign = seq
        GROUP BY seq HAVING items <> count(ordinal)
    """,
    "campaign {0} has taken {1} letters, but number {2} is {3}": """
        SELECT id, taken, ordinal + 1, outcome
        FROM campaign_items JOIN campaigns ON seq = campaign
        WHERE (outcome = 'planned') <> (ordinal >= taken AND ordinal < free)
    """,
}
_TOTALS: Final = "SELECT fingerprint, total FROM groups"
_CAMPAIGNS: Final = "SELECT seq, id, actor, reason, query FROM campaigns"
_ITEM_SUMS: Final = "SELECT campaign, outcome, marks, marks_key, n FROM campaign_outcomes"
_ITEMS: Final = """
SELECT campaign, letter, outcome FROM campaign_items
UNION ALL SELECT campaign, letter, 'waiting' FROM campaign_waiting
"""
_IDS: Final = "SELECT seq, id FROM letters WHERE seq > ? ORDER BY seq LIMIT ?"
_WRITE_SUMS: Final = """
UPDATE office SET deaths = ?, death_marks = ?, letter_marks = ?, marks_key = ?
"""
_WRITE_ITEM_SUM: Final = """
UPDATE campaign_outcomes SET marks = ?, marks_key = ? WHERE campaign = ? AND outcome = ?
"""
_LETTERS_WITH_SEALS: Final = f"""
SELECT {HEAD}, l.generation, l.spent, c.frame, c.history,
    c.digest, c.rest, c.body, c.seal, c.story_seal, o.digest, o.rest, o.body, o.seal,
    (SELECT group_concat(generation) FROM campaign_items
        WHERE letter = l.seq AND generation > 0)
FROM letters l JOIN letter_contents c ON c.letter = l.seq
LEFT JOIN letter_originals o ON o.letter = l.seq
WHERE l.seq > ? ORDER BY l.seq LIMIT ?
"""  # noqa: S608 -- made of constants
_SEAL: Final = "UPDATE letter_contents SET seal = ?, story_seal = ? WHERE letter = ?"
_SEAL_ORIGINAL: Final = "UPDATE letter_originals SET seal = ? WHERE letter = ?"


class SqliteReads:
    """Reads of a whole office on a connection, in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""
        return audit.sealing_of(self._connection)

    async def read_office(self) -> OfficeNumbers:
        """Return the counters and sums of the office."""
        kept, *numbers = self._connection.execute(_OFFICE).fetchone()
        return OfficeNumbers(kept, Sums(*numbers[:4]), Ends(*numbers[4:]))

    async def read_counts(self) -> Counts:
        """Count all letters by source, group and state; return that and the stored counts."""
        letters = [(shown(s), shown(f), state, n) for s, f, state, n in self._rows(_LETTERS)]
        return Counts(letters, self._counted(_BY_SOURCE), self._counted(_BY_GROUP))

    async def find_oddities(self) -> list[str]:
        """Return sentences on rows that do not belong together."""
        return [
            sentence.format(*map(shown, row))
            for sentence, select in _ODDITIES.items()
            for row in self._connection.execute(f"{select} LIMIT ?", (NAMED,))
        ] + deaths.missing(self._connection)

    async def read_ids(self) -> AsyncIterator[str]:
        """Return the ids of all letters."""
        after = 0
        while rows := fetch_odd(self._connection, _IDS, (after, _PAGE)):
            after = rows[-1][0]
            for _, id_ in rows:
                yield str(shown(id_))

    async def read_totals(self) -> dict[str, int]:
        """Return the deaths that each group counts."""
        return {shown(name): n for name, n in self._rows(_TOTALS)}

    async def read_campaigns(self) -> list[tuple[int, str, Start]]:
        """Return the number, id and start of all campaigns."""
        rows = self._rows(_CAMPAIGNS)
        return [(seq, shown(id_), Start(*map(shown, start))) for seq, id_, *start in rows]

    async def read_item_sums(self) -> list[ItemSum]:
        """Return the sums of all campaigns, by outcome."""
        return [ItemSum(*row) for row in self._connection.execute(_ITEM_SUMS)]

    async def read_items(self) -> AsyncIterator[tuple[int, int, str]]:
        """Return all letters of campaigns: the numbers of both, and the outcome."""
        for campaign, letter, outcome in self._connection.execute(_ITEMS):
            yield campaign, letter, outcome

    async def read_audit(self, *, target: str | None, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit behind `after`, of one target or all, oldest first."""
        return audit.page(self._connection, target=target, after=after, limit=limit)

    async def find_sealed(self, after: str) -> SealedLetters:
        """Return some letters behind `after` with their seals, by their numbers."""
        rows = fetch_odd(self._connection, _LETTERS_WITH_SEALS, (int(after or 0), _SLICE))
        letters: list[tuple[int, SealedLetter]] = []
        unreadable: list[str] = []
        for row in rows:
            try:
                letters.append((row[0], _sealed(row)))
            except (TypeError, ValueError, KeyError):  # not written by us
                unreadable.append(str(shown(row[1])))
        return SealedLetters(letters, unreadable, str(rows[-1][0]) if len(rows) == _SLICE else None)

    async def write_sums(self, sums: Sums) -> None:
        """Write other sums of the office."""
        values = (sums.deaths, sums.death_marks, sums.letter_marks, sums.key)
        self._connection.execute(_WRITE_SUMS, values)

    async def write_item_sums(self, sums: Sequence[ItemSum]) -> None:
        """Write other sums of campaigns."""
        rows = [(one.marks, one.key, one.campaign, one.outcome) for one in sums]
        self._connection.executemany(_WRITE_ITEM_SUM, rows)

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""
        message, story, original = seals
        self._connection.execute(_SEAL, (message, story, seq))
        self._connection.execute(_SEAL_ORIGINAL, (original, seq))

    def _rows(self, select: str) -> list[Row]:
        return fetch_odd(self._connection, select, ())

    def _counted(self, select: str) -> dict[tuple[str, str], int]:
        return {(shown(name), shown(state)): n for name, state, n in self._rows(select)}


def _sealed(row: Row) -> SealedLetter:
    head = [shown(value) for value in row[:HEADS]]
    generation, spent, frame, history, *message = row[HEADS : HEADS + 8]
    story_seal, *original, generations = row[HEADS + 8 :]
    return SealedLetter(
        head=head_of(head),
        message=SealedMessage(*message),
        original=None if original[0] is None else SealedMessage(*original),
        frame=shown(frame),
        history=shown(history),
        generation=generation,
        spent=spent,
        seal=story_seal,
        generations=tuple(map(int, generations.split(","))) if generations else (),
    )
