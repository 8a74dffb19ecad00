"""Campaigns as a whole: made, listed, paused, ended."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.audit import act
from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.care import read, written
from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.paging import left_off_nowhere
from deadletter.core.replaying import check_change, runs_as

from .audit import append
from .replay_items import count
from .rows import micros, when
from .sql import Row, fetch, ids, numbers, shown, stored

_COLUMNS: Final = (
    "seq, id, query, created_at, actor, reason, state, mailbox, rate, cap, care,"
    " owner, runs_as"
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
SELECT seq, id, state, cap, actor, items, taken, mailbox, runs_as
FROM campaigns WHERE id = ?
"""
_START: Final = """
INSERT INTO campaigns
    (id, query, created_at, actor, reason, state, mailbox, rate, cap, care, owner,
    runs_as)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SET: Final = "UPDATE campaigns SET state = ? WHERE seq = ?"
_CHANGE: Final = "UPDATE campaigns SET state = ?, runs_as = ? WHERE seq = ?"
# In the order given, and each letter once, also when it is planned again.
_ADD: Final = """
INSERT INTO campaign_items (campaign, ordinal, letter)
SELECT :campaign, :items + row_number() OVER (ORDER BY j.key) - 1, l.seq
FROM json_each(:ids) j CROSS JOIN letters l ON l.id = j.value
WHERE NOT EXISTS (
    SELECT 1 FROM campaign_items WHERE letter = l.seq AND campaign = :campaign)
"""
_ADDED: Final = "UPDATE campaigns SET items = items + ? WHERE seq = ?"


class Course(Struct, frozen=True):
    """Where a campaign stands; items from `taken` on are still only planned."""

    seq: int
    id: str
    state: CampaignState
    cap: int
    actor: str
    items: int
    taken: int
    to: str | None
    runs_as: str


def course(connection: sqlite3.Connection, campaign: str) -> Course | None:
    """Where a campaign stands, if there is one of that id."""
    row = connection.execute(_FIND, (stored(campaign),)).fetchone()
    if row is None:
        return None
    seq, id_, state, *more = map(shown, row)
    return Course(seq, id_, CampaignState(state), *more)


def existing(connection: sqlite3.Connection, campaign: str) -> Course:
    """Where a campaign stands, which must be there."""
    found = course(connection, campaign)
    if found is None:
        raise NotFound(f"there is no campaign {campaign}")
    return found


def plan(
    connection: sqlite3.Connection,
    campaign: Campaign,
    letters: Sequence[str],
    now: datetime,
) -> None:
    """Start a campaign over these letters, or add them to it."""
    stands = course(connection, campaign.id)
    if stands is None:
        connection.execute(_START, _row(campaign))
        stands = existing(connection, campaign.id)
    elif stands.state is CampaignState.CANCELLED:
        raise Conflict(f"campaign {campaign.id} is cancelled: start another one")
    elif stands.state is CampaignState.DONE:  # faster than we could plan
        connection.execute(_SET, (CampaignState.RUNNING.value, stands.seq))
    added = connection.execute(
        _ADD,
        {"campaign": stands.seq, "items": stands.items, "ids": ids(letters)},
    ).rowcount
    connection.execute(_ADDED, (added, stands.seq))
    count(connection, Counter({(stands.seq, Outcome.PLANNED): added}))
    by = By(campaign.actor, campaign.reason)
    detail = f"{added} letters: {campaign.query}"
    append(connection, [act("replay", campaign.id, by, at=now, detail=detail)])


def change(
    connection: sqlite3.Connection,
    campaign: str,
    state: CampaignState,
    by: By,
    now: datetime,
) -> None:
    """Pause, resume, cancel or end a campaign."""
    stands = existing(connection, campaign)
    check_change(campaign, stands.state, state)
    if state is stands.state:
        return
    principal = runs_as(stands.runs_as, state, by)
    connection.execute(_CHANGE, (state.value, stored(principal), stands.seq))
    detail = f"{stands.state} to {state}"
    append(connection, [act("campaign", campaign, by, at=now, detail=detail)])


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
    )


def _campaign(row: Row, counts: dict[Outcome, int]) -> Campaign:
    _, id_, query, created_at, actor, reason, state, to, rate, cap, care, *who = row
    owner, principal = who
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
        counts=counts,
    )
