"""How patient the worker is, and what the dead-letter queue says of a dead event."""

from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import asdict

from deadletter import DeadLetter, DLQPolicy, Message, Profile, State
from deadletter.core.message import as_headers
from deadletter.profiles import courier

from .settings import MAIN

FINISHED: Final = (State.CLOSED, State.REPLAYED, State.DISCARDED)


class CourierPolicy(DLQPolicy, frozen=True, kw_only=True):
    """The policy of the profile; copies of letters are the gateway's own JSON."""

    def dead_copy(self, letter: DeadLetter) -> Message:
        """
        What readers of the dead-letter queue get.

        Its id is the letter's and the number of its death, so that a copy made again
        after a crash is the same one, and a second death is another.
        """
        head = letter.head
        return Message(
            id=f"{letter.id}-{head.replays}",
            body=courier.export(letter),
            sent_at=head.dead_at,
            content_type="application/json",
            idempotency_key=head.business_key,
            headers=as_headers({"dlq-id": letter.id, "dlq-source": head.source}),
        )


def policy_of(profile: Profile) -> CourierPolicy:
    """The policy of the main queue."""
    return CourierPolicy(**asdict(profile.policy_for(MAIN)))


def job_options(profile: Profile) -> bytes:
    """The same patience in BullMQ's words; without, its workers try only once."""
    policy = profile.policy
    base = round(policy.backoff.delay(1, 0.0) * 1000)
    options = {"attempts": policy.max_attempts, "backoff": {"type": "exponential", "delay": base}}
    return msgspec.json.encode(options)


def kept_for(profile: Profile) -> dict[State, timedelta]:
    """How long finished letters are kept; the unfinished never expire."""
    dead = profile.retention.dead
    assert dead is not None  # the profile has one
    return dict.fromkeys(FINISHED, timedelta(seconds=dead))
