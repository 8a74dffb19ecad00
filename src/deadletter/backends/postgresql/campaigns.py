"""Campaigns as a whole: made, listed, paused, ended."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from deadletter.core.audit import act
from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.care import read, written
from deadletter.core.counts import many
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.escaping import stored
from deadletter.core.letter import By
from deadletter.core.paging import left_off_nowhere
from deadletter.core.replaying import check_change, has_begun, runs_as

from .audit import append
from .key_order import chain, has_keys
from .plans import add, not_yet
from .pool import Connection
from .replay_items import count
from .text import legible, storable

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
SELECT seq, id, state, cap, actor, items, taken, surely, mailbox, runs_as, free, late,
    keyed
FROM deadletter.campaigns WHERE id = $1 FOR UPDATE
"""
_START: Final = """
INSERT INTO deadletter.campaigns
    (id, query, created_at, actor, reason, state, mailbox, rate, cap, care, owner,
    runs_as, through)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (id) DO NOTHING
"""
_SET: Final = "UPDATE deadletter.campaigns SET state = $1 WHERE seq = $2"
_CHANGE: Final = """
UPDATE deadletter.campaigns SET state = $1, runs_as = $2 WHERE seq = $3
"""
_ADDED: Final = """
UPDATE deadletter.campaigns SET items = $1, free = $1, late = $1 WHERE seq = $2
"""


class Course(Struct, frozen=True):
    """Where a campaign stands; items from `taken` on are still only planned."""

    seq: int
    id: str
    state: CampaignState
    cap: int
    actor: str
    items: int
    taken: int
    surely: int  # no item before this one is being sent
    to: str | None
    runs_as: str
    free: int  # items before it were planned as such; later ones had waited
    late: int  # none of these before it is being sent
    keyed: bool  # some letters wait for others of their key, or did


async def existing(connection: Connection, campaign: str) -> Course:
    """Where a campaign stands, which must be there; it stays so until the end."""
    row = await connection.fetchrow(_FIND, stored(campaign))
    if row is None:
        raise missing(campaign)
    seq, id_, state, *more = legible(row)
    return Course(seq, id_, CampaignState(state), *more)


def missing(campaign: str) -> NotFound:
    """There is no such campaign."""
    return NotFound(f"there is no campaign {campaign}")


async def plan(
    connection: Connection, campaign: Campaign, letters: Sequence[str], now: datetime
) -> None:
    """Start a campaign over these letters, or add them to it."""
    await connection.execute(_START, *_row(campaign))
    stands = await existing(connection, campaign.id)
    if stands.state is CampaignState.CANCELLED:
        raise Conflict(f"campaign {campaign.id} is cancelled: start another one")
    if stands.items != stands.free:
        raise has_begun(campaign.id)
    if stands.state is CampaignState.DONE:  # faster than we could plan
        await connection.execute(_SET, CampaignState.RUNNING, stands.seq)
    wanted = [stored(id_) for id_ in dict.fromkeys(letters)]
    waiting = 0
    if campaign.care.key_order and await has_keys(connection, wanted):
        new = await not_yet(connection, stands.seq, wanted)
        wanted = await chain(connection, stands.seq, new, stored(campaign.to))
        waiting = len(new) - len(wanted)
    planned = await add(connection, stands.seq, stands.items, wanted)
    added = len(planned)
    await connection.execute(_ADDED, stands.items + added, stands.seq)
    await count(connection, {(stands.seq, None, Outcome.PLANNED): planned})
    by = By(campaign.actor, campaign.reason)
    detail = f"{many(added + waiting, 'letter')}: {campaign.query}"
    await append(connection, [act("replay", campaign.id, by, at=now, detail=detail)])


async def change(
    connection: Connection, campaign: str, state: CampaignState, by: By, now: datetime
) -> None:
    """Pause, resume, cancel or end a campaign."""
    stands = await existing(connection, campaign)
    check_change(campaign, stands.state, state)
    if state is stands.state:
        return
    principal = runs_as(stands.runs_as, state, by)
    await connection.execute(_CHANGE, state, stored(principal), stands.seq)
    detail = f"{stands.state} to {state}"
    await append(connection, [act("campaign", campaign, by, at=now, detail=detail)])


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
    for campaign, outcome, n in await connection.fetch(
        _COUNTS, [row[0] for row in rows]
    ):
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
