"""A replay campaign: which letters go back, how fast, and what became of each."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from .care import AT_ONCE, Care


class Outcome(StrEnum):
    """What became of one letter in one campaign."""

    PLANNED = "planned"
    WAITING = "waiting"  # for the letter before it of its key to be confirmed
    SENDING = "sending"  # intent recorded; the send may or may not have happened
    SENT = "sent"  # the broker has it; its consumer has not settled it yet
    CONFIRMED = "confirmed"  # handled
    PRESUMED = "presumed"  # it did not die again in the time that was stated
    FAILED = "failed"  # back in the office, perhaps after it was confirmed
    UNCONFIRMED = "unconfirmed"  # somebody stopped waiting; an outcome may still come
    SKIPPED = "skipped"  # not open any more, past the cap, or processed meanwhile
    REFUSED = "refused"  # not sent: the server it goes to does not take it
    HELD = "held"  # not sent: one before it of its key was not confirmed


class CampaignState(StrEnum):
    """Where a campaign stands."""

    PLANNED = "planned"  # nothing is sent before somebody says so
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class Campaign(Struct, frozen=True, kw_only=True):
    """
    Letters being sent back, chosen once and for all at the start.

    New letters that match the same query are not part of it.
    """

    id: str
    query: str
    created_at: datetime
    actor: str
    reason: str = ""
    owner: str = ""  # the principal who planned it; none for the command
    runs_as: str = ""  # the principal who let it run last: sent while they may
    state: CampaignState = CampaignState.RUNNING
    to: str | None = None  # another mailbox than each letter's own
    rate: float | None = None  # letters a second; None is as fast as it goes
    cap: int = 5  # replays of one letter before it is quarantined
    care: Care = AT_ONCE
    through: str = ""  # the server of others that its letters go back to
    counts: dict[Outcome, int] = {}


def unsent(campaign: Campaign) -> int:
    """Letters of it that have yet to be sent."""
    counts = campaign.counts
    return sum(
        counts.get(outcome, 0)
        for outcome in (Outcome.PLANNED, Outcome.WAITING, Outcome.SENDING)
    )


def unsettled(campaign: Campaign) -> int:
    """Copies whose consumer has not settled them yet."""
    counts = campaign.counts
    return counts.get(Outcome.SENDING, 0) + counts.get(Outcome.SENT, 0)


def handled(campaign: Campaign) -> int:
    """Copies that were handled, as far as is known or presumed."""
    counts = campaign.counts
    return counts.get(Outcome.CONFIRMED, 0) + counts.get(Outcome.PRESUMED, 0)


class ReplayItem(Struct, frozen=True, kw_only=True):
    """
    One letter's part in one campaign: when, by whom, where to, and its outcome.

    A time is None while that has not happened. A copy that was faster than the
    news of its sending has an outcome but no `sent_at`. One that was confirmed and
    failed again later has both times: `confirmed_at`, and `settled_at` of the failure.
    """

    letter_id: str
    campaign: str
    actor: str
    reason: str = ""
    to: str | None = None  # another mailbox than the letter's own
    generation: int = 0  # of the copy; 0 while none was made
    outcome: Outcome = Outcome.PLANNED
    taken_at: datetime | None = None
    sent_at: datetime | None = None
    settled_at: datetime | None = None
    confirmed_at: datetime | None = None  # only of one that failed again later
    why: str = ""  # it was refused

    @property
    def failed_late(self) -> bool:
        """Whether it was confirmed, and failed again later."""
        return self.confirmed_at is not None
