"""Campaigns as a whole: made, listed, paused, ended."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.campaign import Campaign, CampaignState, Outcome, read, written
from deadletter.core.errors import NotFound
from deadletter.core.query.search_step import left_off_nowhere
from deadletter.core.text import stored
from deadletter.office.transactions.operations import Course

from .database import Connection
from .replays import add, chain, count, has_keys, not_yet
from .rows import legible, storable

_LATEST: Final = """
SELECT seq, id, query, created_at, actor, reason, state, mailbox, rate, cap, care,
    owner, runs_as, through
FROM deadletter.campaigns
WHERE starts_with(id, $2) AND ($3::text IS NULL OR state = $3)
AND ($4::text IS NULL OR owner = $4) AND ($5::int IS NULL OR seq < $5)
ORDER BY seq DESC LIMIT $1
"""
_PLACE: Final = """
SELECT seq FROM deadletter.campaigns
WHERE id = $1 AND ($2::text IS NULL OR owner = $2)
"""
_COUNTS: Final = """
SELECT campaign, outcome, n FROM deadletter.campaign_outcomes
WHERE campaign = ANY($1) AND n > 0
"""
_FIND: Final = """
SELECT seq, id, state, cap, actor, runs_as, items, keyed, taken, surely, mailbox, free,
    late
FROM deadletter.campaigns WHERE id = $1 FOR UPDATE
"""
_START: Final = """
INSERT INTO deadletter.campaigns
    (id, query, created_at, actor, reason, state, mailbox, rate, cap, care, owner,
    runs_as, through)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (id) DO NOTHING
"""
_CHANGE: Final = """
UPDATE deadletter.campaigns SET state = $1, runs_as = $2 WHERE seq = $3
"""
_ADDED: Final = """
UPDATE deadletter.campaigns SET items = $1, free = $1, late = $1 WHERE seq = $2
"""


class PostgresqlCourse(Course, frozen=True):
    """The position of a campaign; items from `taken` on are still only planned."""

    taken: int
    surely: int  # no item before this one is being sent
    to: str | None
    free: int  # items before it were planned as such; later ones had waited
    late: int  # none of these before it is being sent

    @property
    def is_closed(self) -> bool:
        """Return whether letters that had waited for their key were taken."""
        return self.items != self.free


async def course(connection: Connection, campaign: str) -> PostgresqlCourse | None:
    """Return the position of a campaign, locked."""
    row = await connection.fetchrow(_FIND, stored(campaign))
    if row is None:
        return None
    seq, id_, state, *more = legible(row)
    return PostgresqlCourse(seq, id_, CampaignState(state), *more)


async def existing(connection: Connection, campaign: str) -> PostgresqlCourse:
    """Return the position of a campaign, locked. Raises NotFound if there is none."""
    found = await course(connection, campaign)
    if found is None:
        raise missing(campaign)
    return found


def missing(campaign: str) -> NotFound:
    """Return the error for a campaign that does not exist."""
    return NotFound(f"there is no campaign {campaign}")


async def start(connection: Connection, campaign: Campaign) -> None:
    """Write a campaign without letters, unless it exists."""
    await connection.execute(_START, *_row(campaign))


async def add_letters(
    connection: Connection, course: Course, campaign: Campaign, letters: Sequence[str]
) -> int:
    """Add letters to a campaign, oldest sent first; return the number of new ones."""
    wanted = [stored(id_) for id_ in dict.fromkeys(letters)]
    waiting = 0
    if campaign.care.key_order and await has_keys(connection, wanted):
        new = await not_yet(connection, course.seq, wanted)
        wanted = await chain(connection, course.seq, new, stored(campaign.to))
        waiting = len(new) - len(wanted)
    planned = await add(connection, course.seq, course.items, wanted)
    await connection.execute(_ADDED, course.items + len(planned), course.seq)
    await count(connection, {(course.seq, None, Outcome.PLANNED): planned})
    return len(planned) + waiting


async def change(
    connection: Connection, campaign: int, state: CampaignState, principal: str
) -> None:
    """Write another state of a campaign, and the principal that it runs as."""
    await connection.execute(_CHANGE, state, stored(principal), campaign)


async def latest(
    connection: Connection,
    *,
    limit: int,
    begins: str,
    only: CampaignState | None,
    owner: str | None,
    after: str | None,
) -> list[Campaign]:
    """Campaigns with their counts, latest first."""
    behind, planner = None, stored(owner)
    if after is not None:
        behind = await connection.fetchval(_PLACE, stored(after), planner)
        if behind is None:
            raise left_off_nowhere(after)
    rows = await connection.fetch(_LATEST, limit, stored(begins), only, planner, behind)
    counts: defaultdict[int, dict[Outcome, int]] = defaultdict(dict)
    for campaign, outcome, n in await connection.fetch(_COUNTS, [row[0] for row in rows]):
        counts[campaign][Outcome(outcome)] = n
    return [_campaign(legible(row), counts[row[0]]) for row in rows]


def _row(campaign: Campaign) -> Sequence[Any]:
    return storable(
        (
            campaign.id,
            campaign.query,
            campaign.created_at,
            campaign.actor,
            campaign.reason,
            campaign.state,
            campaign.to,
            campaign.rate,
            campaign.cap,
            written(campaign.care),
            campaign.owner,
            campaign.runs_as,
            campaign.through,
        )
    )


def _campaign(row: Sequence[Any], counts: dict[Outcome, int]) -> Campaign:
    _, id_, query, created_at, actor, reason, state, to, rate, cap, care, *who = row
    owner, principal, through = who
    return Campaign(
        id=id_,
        query=query,
        created_at=created_at,
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
