"""What does not add up in an office: everything is counted again and compared."""

from collections.abc import AsyncIterator
from typing import Any, Final

from deadletter.core.audit import Examination, Examined, ItemSum, SealedLetter, SealedMessage, Sums
from deadletter.core.seals import MASK, NAMED, Ends, Start
from deadletter.office.transactions.operations import Seals
from deadletter.office.transactions.verification import Counts, miscounted

from .audit import read_into
from .database import Connection, sealing_of
from .letters_rows import HEAD, JOINED, WHOLE, head_of
from .rows import legible

SLICE: Final = 500  # letters at a time
LONG: Final = 3_600.0  # seconds that looking at everything may take

_OFFICE: Final = "SELECT kept, purged, expired FROM deadletter.office"
_LETTERS: Final = f"""
SELECT l.source, l.fingerprint, m.state, count(*) FROM {JOINED} GROUP BY 1, 2, 3
"""  # noqa: S608 -- made of constants
_BY_SOURCE: Final = "SELECT source, state, n FROM deadletter.source_states"
_BY_GROUP: Final = "SELECT fingerprint, state, n FROM deadletter.group_states"
_OPEN: Final = "SELECT fingerprint, open FROM deadletter.groups"
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
    "campaign {0} says {1} of its letters are {2}, but {3} are": """
        SELECT (SELECT id FROM deadletter.campaigns WHERE seq = campaign),
               sum(told)::bigint, outcome, sum(found)::bigint FROM (
            SELECT campaign, outcome, n AS told, 0 AS found
            FROM deadletter.campaign_outcomes
            UNION ALL
            SELECT campaign, outcome, 0, count(*) FROM deadletter.campaign_items
            GROUP BY campaign, outcome
            UNION ALL
            SELECT campaign, 'waiting', 0, count(*) FROM deadletter.campaign_waiting
            GROUP BY campaign
            UNION ALL
            SELECT campaign, 'planned', 0, first + cardinality(letters)
                - greatest(first, taken)
            FROM deadletter.campaign_plans JOIN deadletter.campaigns ON seq = campaign
            ) c
        GROUP BY campaign, outcome HAVING sum(told) <> sum(found)
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
SELECT campaign, outcome, marks, marks_key FROM deadletter.campaign_outcomes
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
_SUMS: Final = """
SELECT deaths, death_marks, letter_marks, marks_key FROM deadletter.office
"""
_LETTERS_ANEW: Final = """
UPDATE deadletter.office SET marks_key = $1, letter_marks = $2, death_marks = $3
"""
_ITEMS_ANEW: Final = """
UPDATE deadletter.campaign_outcomes SET marks_key = $1, marks = $2
WHERE campaign = $3 AND outcome = $4
"""
_REMARK: Final = """
UPDATE deadletter.letter_contents SET mark = $2, mark_key = $3 WHERE letter = $1
"""
_ENDS: Final = "SELECT audit_seq, audit_hash, purged, expired FROM deadletter.office"
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


async def examine(connection: Connection) -> Examined:
    """Examine everything, at one moment."""
    sums = Sums(*await connection.fetchrow(_SUMS))
    examination = Examination(sealing_of(connection), sums)
    examination.find(*await _miscounted(connection))
    for sentence, select in _ODDITIES.items():
        rows = await connection.fetch(f"{select} LIMIT {NAMED}", timeout=LONG)
        examination.find(*(sentence.format(*legible(row)) for row in rows))
    after = 0
    while rows := await connection.fetch(_WITH_SEALS, after, SLICE, timeout=LONG):
        for row in rows:
            letter = _sealed(row)
            examination.count_letter(letter.head.id)
            examination.add(letter)
        after = rows[-1][0]
    await _read_items(connection, examination, _ITEM_SUMS)
    await read_into(connection, examination.chain)
    ends = Ends(*await connection.fetchrow(_ENDS))
    examination.compare(ends, await _pairs(connection, _TOTALS))
    return examination.result()


async def _read_items(connection: Connection, examination: Examination, sums: str) -> None:
    for row in await connection.fetch(sums, timeout=LONG):
        examination.add_item_sum(ItemSum(*row))
    rows = await connection.fetch(_CAMPAIGNS, timeout=LONG)
    for seq, id_, *start in map(legible, rows):
        examination.add_campaign(seq, id_, Start(*start))
        async for letter, outcome in _items(connection, seq):
            examination.add_item(seq, letter, outcome)


async def _items(connection: Connection, campaign: int) -> AsyncIterator[Any]:
    """All parts of a campaign: the letter of each, and what became of it."""
    after = -1
    while rows := await connection.fetch(_ITEMS, campaign, after, timeout=LONG):
        after = rows[-1][0]
        for _, letter, outcome in rows:
            yield letter, outcome
    for row in await connection.fetch(_NOT_TAKEN, campaign, timeout=LONG):
        yield row


async def rekey(connection: Connection) -> None:
    """
    Make sums of letters and campaigns anew with the first key, where they fit.

    Whoever changes one waits for it, and finds that its key is another one.
    """
    sealing = sealing_of(connection)
    marks = sealing.marks()
    sums = Sums(*await connection.fetchrow(f"{_SUMS} FOR UPDATE"))
    examination = Examination(sealing, sums)
    totals = await _pairs(connection, _TOTALS)
    letter_marks = after = 0
    while rows := await connection.fetch(_IDS, after, timeout=LONG):
        after = rows[-1][0]
        for _, id_ in map(legible, rows):
            examination.count_letter(id_)
            letter_marks += marks.text(id_)
    await _read_items(connection, examination, f"{_ITEM_SUMS} FOR UPDATE")
    outdated = examination.outdated(totals)
    if outdated.letters:
        new = (marks.key_id, letter_marks & MASK, marks.texts(totals))
        await connection.execute(_LETTERS_ANEW, *new)
    for one in outdated.items:
        campaign, outcome = one.campaign, one.outcome
        letters = [
            letter async for letter, became in _items(connection, campaign) if became == outcome
        ]
        total = marks.items(campaign, outcome, letters)
        which = (campaign, outcome)
        await connection.execute(_ITEMS_ANEW, marks.key_id, total, *which)


async def sealed_letters(
    connection: Connection, after: str
) -> tuple[list[tuple[int, SealedLetter]], str | None]:
    """Return some letters behind `after` with their seals, locked, and where to continue."""
    locked = f"{_WITH_SEALS} FOR UPDATE OF l, m, c"
    rows = await connection.fetch(locked, int(after or 0), SLICE)
    last = str(rows[-1][0]) if len(rows) == SLICE else None
    return [(row[0], _sealed(row)) for row in rows], last


async def write_seals(connection: Connection, seq: int, letter: SealedLetter, seals: Seals) -> None:
    """Write new seals of a letter, and the mark of its message."""
    message, story, original = seals
    await connection.execute(_SEAL, seq, message, story)
    marks = sealing_of(connection).marks()
    mark = marks.message(letter.head.message_id, letter.message.body)
    await connection.execute(_REMARK, seq, mark, marks.key_id)
    if original is not None:
        await connection.execute(_SEAL_ORIGINAL, seq, original)


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


async def _pairs(connection: Connection, select: str) -> dict[str, int]:
    rows = await connection.fetch(select, timeout=LONG)
    return {name: int(n) for name, n in map(legible, rows)}


async def _miscounted(connection: Connection) -> list[str]:
    letters = await connection.fetch(_LETTERS, timeout=LONG)
    opened = {(name, "open"): n for name, n in map(legible, await connection.fetch(_OPEN))}
    kept, purged, expired = await connection.fetchrow(_OFFICE)
    by_source = await _counted(connection, _BY_SOURCE)
    by_group = await _counted(connection, _BY_GROUP) | opened
    counts = Counts(kept, purged, expired, by_source, by_group)
    return miscounted([tuple(legible(row)) for row in letters], counts)


async def _counted(connection: Connection, select: str) -> dict[tuple[str, str], int]:
    rows = await connection.fetch(select)
    return {(name, state): n for name, state, n in map(legible, rows)}
