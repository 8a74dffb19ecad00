"""Reads of a whole PostgreSQL office that verification compares, and the seals it renews."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from deadletter.core.audit import ItemSum, SealedLetter, SealedMessage, Sums
from deadletter.core.letter import AuditEntry
from deadletter.core.seals import NAMED, Ends, Sealing, Start
from deadletter.office.transactions.operations import Counts, OfficeNumbers, SealedLetters, Seals

from . import audit, deaths
from .database import Connection, sealing_of
from .letters_rows import HEAD, JOINED, WHOLE, head_of
from .rows import legible

LONG: Final = 3_600.0  # seconds that reading everything may take
_SLICE: Final = 500  # letters at a time

_OFFICE: Final = """
SELECT kept, deaths, death_marks, letter_marks, marks_key,
    audit_seq, audit_hash, purged, expired FROM deadletter.office
"""
_LETTERS: Final = f"""
SELECT l.source, l.fingerprint, m.state, count(*) FROM {JOINED} GROUP BY 1, 2, 3
"""  # noqa: S608 -- made of constants
_BY_SOURCE: Final = "SELECT source, state, n FROM deadletter.source_states"
_BY_GROUP: Final = """
SELECT fingerprint, state, n FROM deadletter.group_states
UNION ALL SELECT fingerprint, 'open', open FROM deadletter.groups
"""
# Each sentence is about what its query finds.
_ODDITIES: Final = {
    "letter {0} has no contents": """
        SELECT id FROM deadletter.letters WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letter_contents WHERE letter = seq)
    """,
    "letter {0} has no state": """
        SELECT id FROM deadletter.letters WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letter_marks WHERE letter = seq)
    """,
    "letter {0} is marked with another death or group than its own": f"""
        SELECT id FROM {JOINED}
        WHERE m.dead_at <> l.dead_at OR m.fingerprint <> l.fingerprint
    """,  # noqa: S608 -- made of constants
    "contents {0} belong to no letter": """
        SELECT letter FROM deadletter.letter_contents WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letters WHERE seq = letter)
    """,
    "original {0} belongs to no letter": """
        SELECT letter FROM deadletter.letter_originals WHERE NOT EXISTS (
            SELECT 1 FROM deadletter.letters WHERE seq = letter)
    """,
    "campaign {0} says it has {1} letters, but it has {2}": """
        SELECT id, items, n FROM deadletter.campaigns g CROSS JOIN LATERAL (
            SELECT (SELECT count(*) FROM deadletter.campaign_items
                WHERE campaign = g.seq) + (
                SELECT coalesce(sum(until - greatest(first, g.taken)), 0)
                FROM deadletter.campaign_plans WHERE campaign = g.seq) AS n) found
        WHERE items <> n
    """,
    "campaign {0} has taken {1} letters, but number {2} is {3}": """
        SELECT id, taken, ordinal + 1, outcome
        FROM deadletter.campaign_items JOIN deadletter.campaigns ON seq = campaign
        WHERE ordinal >= taken AND ordinal < free
        OR outcome = 'sending' AND (
            ordinal < surely OR ordinal >= free AND ordinal < late)
    """,
}
_TOTALS: Final = "SELECT fingerprint, total FROM deadletter.groups"
_CAMPAIGNS: Final = "SELECT seq, id, actor, reason, query FROM deadletter.campaigns"
_ITEM_SUMS: Final = """
SELECT campaign, outcome, marks, marks_key, n FROM deadletter.campaign_outcomes
"""
_ITEMS: Final = """
SELECT ordinal, letter, outcome FROM deadletter.campaign_items
WHERE campaign = $1 AND ordinal > $2 ORDER BY ordinal LIMIT 5000
"""
_NOT_TAKEN: Final = """
SELECT letter, 'waiting' FROM deadletter.campaign_waiting WHERE campaign = $1
UNION ALL
SELECT w.letter, 'planned'
FROM deadletter.campaign_plans p JOIN deadletter.campaigns g ON g.seq = p.campaign
CROSS JOIN LATERAL unnest(p.letters) WITH ORDINALITY AS w (letter, place)
WHERE p.campaign = $1 AND p.first + w.place - 1 >= g.taken
"""
_IDS: Final = """
SELECT seq, id FROM deadletter.letters WHERE seq > $1 ORDER BY seq LIMIT 5000
"""
_WRITE_SUMS: Final = """
UPDATE deadletter.office SET deaths = $1, death_marks = $2, letter_marks = $3, marks_key = $4
"""
_WRITE_ITEM_SUM: Final = """
UPDATE deadletter.campaign_outcomes SET marks = $3, marks_key = $4
WHERE campaign = $1 AND outcome = $2
"""
_REMARK: Final = """
UPDATE deadletter.letter_contents SET mark = $2, mark_key = $3 WHERE letter = $1
"""
_WITH_SEALS: Final = f"""
SELECT {HEAD}, l.generation, l.spent, c.frame, c.history,
    c.digest, c.rest, c.body, c.seal, c.story_seal, o.digest, o.rest, o.body, o.seal,
    ARRAY(SELECT generation FROM deadletter.campaign_items i
        WHERE i.letter = l.seq AND i.generation > 0)
FROM {WHOLE} LEFT JOIN deadletter.letter_originals o ON o.letter = l.seq
WHERE l.seq > $1 ORDER BY l.seq LIMIT $2
"""  # noqa: S608 -- made of constants
_SEAL: Final = """
UPDATE deadletter.letter_contents SET seal = $2, story_seal = $3 WHERE letter = $1
"""
_SEAL_ORIGINAL: Final = """
UPDATE deadletter.letter_originals SET seal = $2 WHERE letter = $1
"""


class PostgresqlReads:
    """Reads of a whole office on a connection, in one transaction."""

    def __init__(self, connection: Connection, *, locks: bool = True) -> None:
        self._connection = connection
        self._lock = "FOR UPDATE" if locks else ""  # behind a select of what may be changed

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""
        return sealing_of(self._connection)

    async def read_office(self) -> OfficeNumbers:
        """Return the counters and sums of the office."""
        kept, *numbers = await self._connection.fetchrow(f"{_OFFICE} {self._lock}")
        return OfficeNumbers(kept, Sums(*numbers[:4]), Ends(*numbers[4:]))

    async def read_counts(self) -> Counts:
        """Count all letters by source, group and state; return that and the stored counts."""
        letters = [(one[0], one[1], one[2], one[3]) for one in await self._rows(_LETTERS)]
        by_source, by_group = await self._rows(_BY_SOURCE), await self._rows(_BY_GROUP)
        return Counts(
            letters,
            {(name, state): n for name, state, n in by_source},
            {(name, state): n for name, state, n in by_group},
        )

    async def find_oddities(self) -> list[str]:
        """Return sentences on rows that do not belong together."""
        return [
            sentence.format(*row)
            for sentence, select in _ODDITIES.items()
            for row in await self._rows(f"{select} LIMIT {NAMED}")
        ] + await deaths.missing(self._connection)

    async def read_ids(self) -> AsyncIterator[str]:
        """Return the ids of all letters."""
        after = 0
        while rows := await self._rows(_IDS, after):
            after = rows[-1][0]
            for _, id_ in rows:
                yield id_

    async def read_totals(self) -> dict[str, int]:
        """Return the deaths that each group counts."""
        return {name: int(n) for name, n in await self._rows(_TOTALS)}

    async def read_campaigns(self) -> list[tuple[int, str, Start]]:
        """Return the number, id and start of all campaigns."""
        rows = await self._rows(_CAMPAIGNS)
        return [(seq, id_, Start(*start)) for seq, id_, *start in rows]

    async def read_item_sums(self) -> list[ItemSum]:
        """Return the sums of all campaigns, by outcome."""
        return [ItemSum(*row) for row in await self._rows(f"{_ITEM_SUMS} {self._lock}")]

    async def read_items(self) -> AsyncIterator[tuple[int, int, str]]:
        """Return all letters of campaigns: the numbers of both, and the outcome."""
        for (campaign,) in await self._rows("SELECT seq FROM deadletter.campaigns"):
            after = -1
            while rows := await self._rows(_ITEMS, campaign, after):
                after = rows[-1][0]
                for _, letter, outcome in rows:
                    yield campaign, letter, outcome
            for letter, outcome in await self._rows(_NOT_TAKEN, campaign):
                yield campaign, letter, outcome

    async def read_audit(self, *, target: str | None, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit behind `after`, of one target or all, oldest first."""
        return await audit.page(self._connection, target=target, after=after, limit=limit)

    async def find_sealed(self, after: str) -> SealedLetters:
        """Return some letters behind `after` with their seals, by their numbers."""
        lock = f"{self._lock} OF l, m, c" if self._lock else ""
        rows = await self._connection.fetch(
            f"{_WITH_SEALS} {lock}", int(after or 0), _SLICE, timeout=LONG
        )
        letters = [(row[0], _sealed(row)) for row in rows]
        return SealedLetters(letters, after=str(rows[-1][0]) if len(rows) == _SLICE else None)

    async def write_sums(self, sums: Sums) -> None:
        """Write other sums of the office."""
        values = (sums.deaths, sums.death_marks, sums.letter_marks, sums.key)
        await self._connection.execute(_WRITE_SUMS, *values)

    async def write_item_sums(self, sums: Sequence[ItemSum]) -> None:
        """Write other sums of campaigns."""
        rows = [(one.campaign, one.outcome, one.marks, one.key) for one in sums]
        await self._connection.executemany(_WRITE_ITEM_SUM, rows)

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter, and the mark of its message."""
        message, story, original = seals
        await self._connection.execute(_SEAL, seq, message, story)
        marks = self.sealing.marks()
        mark = marks.message(letter.head.message_id, letter.message.body)
        await self._connection.execute(_REMARK, seq, mark, marks.key_id)
        if original is not None:
            await self._connection.execute(_SEAL_ORIGINAL, seq, original)

    async def _rows(self, select: str, *values: int) -> list[Sequence[Any]]:
        rows = await self._connection.fetch(select, *values, timeout=LONG)
        return [legible(row) for row in rows]


def _sealed(row: Any) -> SealedLetter:
    width = HEAD.count(",") + 1
    generation, spent, frame, history, *message = row[width : width + 8]
    story_seal, *original, generations = row[width + 8 :]
    return SealedLetter(
        head=head_of(row),
        message=SealedMessage(*message),
        original=None if original[0] is None else SealedMessage(*original),
        frame=frame.decode("utf-8", "surrogatepass"),
        history=history.decode("utf-8", "surrogatepass"),
        generation=generation,
        spent=spent,
        seal=story_seal,
        generations=tuple(generations),
    )
