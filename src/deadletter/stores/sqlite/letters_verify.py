"""What does not add up in an office: everything is counted again and compared."""

import sqlite3
from typing import Any, Final

from deadletter.core.audit import Examination, Examined, ItemSum, SealedLetter, SealedMessage, Sums
from deadletter.core.seals import NAMED, Ends, Start
from deadletter.office.transactions.operations import Seals
from deadletter.office.transactions.verification import Counts, miscounted

from .audit import read_into, sealing_of
from .letters_rows import HEAD, HEADS, head_of
from .sql import Row, fetch_odd, shown

SLICE: Final = 500  # letters at a time

_OFFICE: Final = "SELECT kept, purged, expired FROM office"
# Not indexed, because reading all letters in their own order is the fastest way.
_LETTERS: Final = """
SELECT source, fingerprint, state, count(*) FROM letters NOT INDEXED GROUP BY 1, 2, 3
"""
_BY_SOURCE: Final = "SELECT source, state, n FROM source_states"
_BY_GROUP: Final = "SELECT fingerprint, state, n FROM group_states"
_OPEN: Final = "SELECT fingerprint, open FROM groups"
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
    "campaign {0} says {1} of its letters are {2}, but {3} are": """
        SELECT (SELECT id FROM campaigns WHERE seq = campaign),
               sum(told), outcome, sum(found) FROM (
            SELECT campaign, outcome, n AS told, 0 AS found FROM campaign_outcomes
            UNION ALL
            SELECT campaign, outcome, 0, count(*) FROM campaign_items
            GROUP BY campaign, outcome
            UNION ALL
            SELECT campaign, 'waiting', 0, count(*) FROM campaign_waiting
            GROUP BY campaign)
        GROUP BY campaign, outcome HAVING sum(told) <> sum(found)
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
_ITEM_SUMS: Final = """
SELECT campaign, outcome, marks, marks_key FROM campaign_outcomes
"""
_ITEMS: Final = """
SELECT campaign, letter, outcome FROM campaign_items
UNION ALL SELECT campaign, letter, 'waiting' FROM campaign_waiting
"""
_SUMS: Final = "SELECT deaths, death_marks, letter_marks, marks_key FROM office"
_IDS: Final = "SELECT id FROM letters"
# What is there is where sums begin that are made with another key.
_LETTERS_ANEW: Final = """
UPDATE office SET marks_key = :key,
    letter_marks = (SELECT coalesce(text_marks(:key, id, 1), 0) FROM letters),
    death_marks = (SELECT coalesce(text_marks(:key, fingerprint, total), 0) FROM groups)
"""
_ITEMS_ANEW: Final = """
UPDATE campaign_outcomes SET marks_key = :key, marks = (
    SELECT coalesce(item_marks(:key, :campaign, letter, :outcome), 0) FROM (
        SELECT letter FROM campaign_items
        WHERE campaign = :campaign AND outcome = :outcome
        UNION ALL
        SELECT letter FROM campaign_waiting
        WHERE campaign = :campaign AND :outcome = 'waiting'))
WHERE campaign = :campaign AND outcome = :outcome
"""
_ENDS: Final = "SELECT audit_seq, audit_hash, purged, expired FROM office"
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


def examine(connection: sqlite3.Connection) -> Examined:
    """Examine everything, at one moment."""
    sums = Sums(*connection.execute(_SUMS).fetchone())
    examination = Examination(sealing_of(connection), sums)
    examination.find(*_miscounted(connection))
    for sentence, select in _ODDITIES.items():
        rows = connection.execute(f"{select} LIMIT ?", (NAMED,))
        examination.find(*(sentence.format(*map(shown, row)) for row in rows))
    _read_letters(connection, examination)
    _read_items(connection, examination)
    read_into(connection, examination.chain)
    ends = Ends(*connection.execute(_ENDS).fetchone())
    examination.compare(ends, _pairs(connection, _TOTALS))
    return examination.result()


def _read_items(connection: sqlite3.Connection, examination: Examination) -> None:
    for seq, id_, *start in fetch_odd(connection, _CAMPAIGNS, ()):
        examination.add_campaign(seq, shown(id_), Start(*map(shown, start)))
    for row in connection.execute(_ITEM_SUMS):
        examination.add_item_sum(ItemSum(*row))
    for item in connection.execute(_ITEMS):
        examination.add_item(*item)


def _read_letters(connection: sqlite3.Connection, examination: Examination) -> None:
    after = 0
    while rows := fetch_odd(connection, _LETTERS_WITH_SEALS, (after, SLICE)):
        for row in rows:
            id_ = str(shown(row[1]))
            examination.count_letter(id_)
            try:
                letter = _sealed(row)
            except (TypeError, ValueError, KeyError):  # not written by us
                examination.add_unreadable(id_)
                continue
            examination.add(letter)
        after = rows[-1][0]


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


def _pairs(connection: sqlite3.Connection, select: str) -> dict[str, int]:
    return {shown(name): n for name, n in fetch_odd(connection, select, ())}


def _miscounted(connection: sqlite3.Connection) -> list[str]:
    letters = [tuple(map(shown, row)) for row in connection.execute(_LETTERS)]
    opened = {(shown(name), "open"): n for name, n in connection.execute(_OPEN)}
    kept, purged, expired = connection.execute(_OFFICE).fetchone()
    by_source = _counted(connection, _BY_SOURCE)
    by_group = _counted(connection, _BY_GROUP) | opened
    counts = Counts(kept, purged, expired, by_source, by_group)
    return miscounted(letters, counts)


def _counted(connection: sqlite3.Connection, select: str) -> dict[tuple[str, str], int]:
    return {(shown(name), state): n for name, state, n in connection.execute(select)}


def rekey(connection: sqlite3.Connection) -> None:
    """Make sums of letters and campaigns anew with the first key, where they fit."""
    sealing = sealing_of(connection)
    examination = Examination(sealing, Sums(*connection.execute(_SUMS).fetchone()))
    for (id_,) in fetch_odd(connection, _IDS, ()):
        examination.count_letter(shown(id_))
    _read_items(connection, examination)
    changed = examination.outdated(_pairs(connection, _TOTALS))
    key: dict[str, Any] = {"key": sealing.key_id}
    if changed.letters:
        connection.execute(_LETTERS_ANEW, key)
    for one in changed.items:
        which = {"campaign": one.campaign, "outcome": one.outcome}
        connection.execute(_ITEMS_ANEW, key | which)


def sealed_letters(
    connection: sqlite3.Connection, after: str
) -> tuple[list[tuple[int, SealedLetter]], str | None]:
    """Return some letters behind `after` with their seals, and where to continue."""
    rows = fetch_odd(connection, _LETTERS_WITH_SEALS, (int(after or 0), SLICE))
    last = str(rows[-1][0]) if len(rows) == SLICE else None
    return [(row[0], _sealed(row)) for row in rows], last


def write_seals(connection: sqlite3.Connection, seq: int, seals: Seals) -> None:
    """Write new seals of a letter."""
    message, story, original = seals
    connection.execute(_SEAL, (message, story, seq))
    connection.execute(_SEAL_ORIGINAL, (original, seq))
