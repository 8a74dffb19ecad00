"""The retry policy of the worker, and the copy of a dead event in the dead-letter queue."""

import msgspec
from msgspec.structs import asdict

from deadletter import DeadLetter, DLQPolicy, Message, Profile
from deadletter.core.message import as_headers
from deadletter.profiles import courier

from .settings import MAIN


class CourierPolicy(DLQPolicy, frozen=True, kw_only=True):
    """The policy of the profile; copies of letters are the gateway's own JSON."""

    copies_live: float = 0.0  # seconds

    def dead_copy(self, letter: DeadLetter) -> Message:
        """
        Return the message for readers of the dead-letter queue.

        Its id is the letter's and the number of its death: a copy made again after a crash has
        the same id, that of a second death another.
        """
        head = letter.head
        return Message(
            id=f"{letter.id}-{head.replays}",
            body=courier.export(letter),
            sent_at=head.dead_at,
            content_type="application/json",
            idempotency_key=head.business_key,
            headers=as_headers(
                {
                    "dlq-id": letter.id,
                    "dlq-source": head.source,
                    "bullmq-opts": _removal(self.copies_live),
                }
            ),
        )


def policy_of(profile: Profile) -> CourierPolicy:
    """Return the policy of the main queue."""
    known = asdict(profile.policy_for(MAIN))
    return CourierPolicy(**known, copies_live=profile.retention.dead or 0.0)


def job_options(profile: Profile) -> bytes:
    """Return the same attempts and delays for BullMQ's workers, which otherwise try once."""
    policy = profile.policy
    base = round(policy.backoff.delay(1, 0.0) * 1000)
    options = {"attempts": policy.max_attempts, "backoff": {"type": "exponential", "delay": base}}
    return msgspec.json.encode(options)


def _removal(seconds: float) -> str:
    """Return BullMQ's options that remove a copy which one of its workers has read."""
    age = {"age": round(seconds)}
    return msgspec.json.encode({"removeOnComplete": age, "removeOnFail": age}).decode()
