"""Campaigns as a whole: made, listed, paused, ended."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from deadletter.core.campaign import Campaign, CampaignState, Outcome, read, written
from deadletter.core.errors import NotFound
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.office.transactions.operations import Course

from .replays import chain, count
from .sql import Row, fetch, ids, micros, numbers, shown, stored, when

_COLUMNS: Final = (
    "seq, id, query, created_at, actor, reason, state, mailbox, rate, cap, care,"
    " owner, runs_as, through"
)
_LATEST: Final = """
SELECT * FROM campaigns
WHERE substr(id, 1, length(:begins)) = :begins
AND (:only IS NULL OR state = :only)
AND (:owner IS NULL OR owner = :owner)
AND (:behind IS NULL OR seq < :behind)
ORDER BY seq DESC LIMIT :limit
"""
_PLACE: Final = """
SELECT seq FROM campaigns WHERE id = :after AND (:owner IS NULL OR owner = :owner)
"""
_COUNTS: Final = """
SELECT campaign, outcome, n FROM campaign_outcomes
WHERE campaign IN (SELECT value FROM json_each(?)) AND n > 0
"""
_FIND: Final = """
SELECT seq, id, state, cap, actor, runs_as, items, keyed, taken, mailbox, free
FROM campaigns WHERE id = ?
"""
_START: Final = """
INSERT INTO campaigns
    (id, query, created_at, actor, reason, state, mailbox, rate, cap, care, owner,
    runs_as, through)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
_CHANGE: Final = "UPDATE campaigns SET state = ?, runs_as = ? WHERE seq = ?"
# Oldest first, and each letter once, also when it is planned again.
_OLDEST_FIRST: Final = """
ORDER BY ifnull(l.sent_at, l.first_failed_at), l.sent_place, l.message_id, l.seq
"""
_ORDERED: Final = f"""
SELECT l.id FROM json_each(?) j CROSS JOIN letters l ON l.id = j.value {_OLDEST_FIRST}
"""  # noqa: S608 -- all of it is ours
_ADD: Final = f"""
INSERT INTO campaign_items (campaign, ordinal, letter)
SELECT :campaign, :items + row_number() OVER ({_OLDEST_FIRST}) - 1, l.seq
FROM json_each(:ids) j CROSS JOIN letters l ON l.id = j.value
WHERE NOT EXISTS (
    SELECT 1 FROM campaign_items WHERE letter = l.seq AND campaign = :campaign)
"""  # noqa: S608 -- all of it is ours
_NEW: Final = "SELECT letter FROM campaign_items WHERE campaign = ? AND ordinal >= ?"
_ADDED: Final = "UPDATE campaigns SET items = ?, free = ? WHERE seq = ?"


class SqliteCourse(Course, frozen=True):
    """The position of a campaign; items from `taken` on are still only planned."""

    taken: int
    to: str | None
    free: int  # items before it were planned as such; later ones had waited

    @property
    def is_closed(self) -> bool:
        """Return whether letters that had waited for their key were taken."""
        return self.items != self.free


def course(connection: sqlite3.Connection, campaign: str) -> SqliteCourse | None:
    """Where a campaign stands, if there is one of that id."""
    row = connection.execute(_FIND, (stored(campaign),)).fetchone()
    if row is None:
        return None
    seq, id_, state, *more = map(shown, row)
    return SqliteCourse(seq, id_, CampaignState(state), *more)


def existing(connection: sqlite3.Connection, campaign: str) -> SqliteCourse:
    """Where a campaign stands, which must be there."""
    found = course(connection, campaign)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    return found


def start(connection: sqlite3.Connection, campaign: Campaign) -> None:
    """Write a campaign without letters, unless it exists."""
    connection.execute(_START, _row(campaign))


def add(
    connection: sqlite3.Connection, course: Course, campaign: Campaign, letters: Sequence[str]
) -> int:
    """Add letters to a campaign, oldest sent first; return the number of new ones."""
    first = course.items
    adding = {"campaign": course.seq, "items": first, "ids": ids(letters)}
    connection.execute(_ADD, adding)
    new = [row[0] for row in connection.execute(_NEW, (course.seq, first))]
    end = first + len(new)
    connection.execute(_ADDED, (end, end, course.seq))
    count(connection, {(course.seq, None, Outcome.PLANNED): new})
    if campaign.care.key_order:
        chain(connection, course.seq, first, campaign.to)
    return len(new)


def sent_order(connection: sqlite3.Connection, letters: Sequence[str]) -> list[str]:
    """The ids of letters that exist, oldest sent first."""
    return [row[0] for row in fetch(connection, "id", _ORDERED, (ids(letters),))]


def change(
    connection: sqlite3.Connection, campaign: int, state: CampaignState, principal: str
) -> None:
    """Write another state of a campaign, and the principal that it runs as."""
    connection.execute(_CHANGE, (state.value, stored(principal), campaign))


def latest(
    connection: sqlite3.Connection,
    *,
    limit: int,
    begins: str,
    only: CampaignState | None,
    owner: str | None,
    after: str | None,
) -> list[Campaign]:
    """Campaigns with their counts, latest first."""
    asked = {
        "limit": limit,
        "begins": stored(begins),
        "only": only,
        "owner": stored(owner),
        "behind": None,
    }
    if after is not None:
        known = connection.execute(
            _PLACE, {"after": stored(after), "owner": stored(owner)}
        ).fetchone()
        if known is None:
            raise left_off_nowhere(after)
        asked["behind"] = known[0]
    rows = fetch(connection, _COLUMNS, _LATEST, asked)
    counts: dict[int, dict[Outcome, int]] = {row[0]: {} for row in rows}
    for campaign, outcome, n in fetch(
        connection, "campaign, outcome, n", _COUNTS, (numbers(counts),)
    ):
        counts[campaign][Outcome(outcome)] = n
    return [_campaign(row, counts[row[0]]) for row in rows]


def _row(campaign: Campaign) -> Row:
    return (
        stored(campaign.id),
        stored(campaign.query),
        micros(campaign.created_at),
        stored(campaign.actor),
        stored(campaign.reason),
        campaign.state.value,
        stored(campaign.to),
        campaign.rate,
        campaign.cap,
        written(campaign.care),
        stored(campaign.owner),
        stored(campaign.runs_as),
        stored(campaign.through),
    )


def _campaign(row: Row, counts: dict[Outcome, int]) -> Campaign:
    _, id_, query, created_at, actor, reason, state, to, rate, cap, care, *who = row
    owner, principal, through = who
    return Campaign(
        id=id_,
        query=query,
        created_at=when(created_at),
        actor=actor,
        reason=reason,
        owner=owner,
        runs_as=principal,
        state=CampaignState(state),
        to=to,
        rate=rate,
        cap=cap,
        care=read(care),
        through=through,
        counts=counts,
    )
