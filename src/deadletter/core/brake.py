"""
The brake: an outage is not a flood.

When a downstream is down every message fails, and none of them is to blame. After
enough transient failures in a row, of enough different messages, fetching stops;
single probes find out when it may go on. A `Brake` is a value: each thing that
happens makes the next one, time and chance handed in.
"""

from sys import maxsize
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .backoff import Exponential
from .errors import ConfigError
from .failure import Trouble

MANY: Final = maxsize
"""As many as there is room for."""

# The other side answered, if only to say no. A malformed body or an expired
# message was never put to it; an unknown error may be anything.
_ANSWERS: Final = frozenset({Trouble.PERMANENT, Trouble.LOGICAL})


class BrakePolicy(Struct, frozen=True, kw_only=True):
    """What counts as an outage, and how often to look whether it is over."""

    threshold: int = 10  # transient failures in a row
    distinct: int = 3  # different messages among them; one alone is just poison
    probe_after: float = 1.0  # seconds, doubling with every failed probe
    cap: float = 30.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.threshold < 1 or self.distinct < 1:
            raise ConfigError(
                f"BrakePolicy(threshold={self.threshold}, distinct={self.distinct}) "
                "would brake without a failure: use 1 or more for both."
            )
        if self.pause(1, 0.0) <= 0:
            raise ConfigError(
                f"BrakePolicy(probe_after={self.probe_after}, cap={self.cap}) would "
                "probe without a pause: use seconds above 0 for both."
            )

    def pause(self, probe: int, draw: float) -> float:
        """How long to wait before the `probe`-th probe, in seconds."""
        pauses = Exponential(self.probe_after, 2.0, self.cap, self.jitter)
        return pauses.delay(probe, draw)


class Brake(Struct, frozen=True):
    """Whether messages may be fetched, and what that is concluded from."""

    policy: BrakePolicy = BrakePolicy()
    failures: int = 0  # transient, in a row
    messages: frozenset[str] = frozenset()  # the first few different ones of them
    opened_at: float | None = None  # monotonic; None while all is well
    probe_at: float = 0.0
    probes: int = 0  # failed since it opened
    probing: bool = False

    @property
    def is_open(self) -> bool:
        """Whether fetching has stopped."""
        return self.opened_at is not None

    def spares(self, trouble: Trouble) -> bool:
        """Whether a failure is the outage's fault and costs no attempt."""
        return self.is_open and trouble is Trouble.TRANSIENT


def may_fetch(brake: Brake, now: float) -> int:
    """How many messages may be fetched now: MANY, 1 (a probe) or 0."""
    if not brake.is_open:
        return MANY
    return 1 if now >= brake.probe_at else 0


def on_probe(brake: Brake, now: float, draw: float) -> Brake:
    """A probe is under way; should it get lost, the next one is due in a while."""
    pause = brake.policy.pause(brake.probes + 1, draw)
    return replace(brake, probing=True, probe_at=now + pause)


def on_success(brake: Brake) -> Brake:
    """Something was handled: whatever was down is up."""
    return Brake(brake.policy)


def on_failure(
    brake: Brake, trouble: Trouble, message_id: str, now: float, draw: float
) -> Brake:
    """An attempt has failed; only transient trouble counts towards an outage."""
    if trouble in _ANSWERS:
        return on_success(brake)
    if trouble is not Trouble.TRANSIENT:
        return brake
    if brake.is_open:
        return _failed_while_open(brake, now, draw)
    messages = brake.messages
    if len(messages) < brake.policy.distinct:  # more are not needed
        messages |= {message_id}
    failures = brake.failures + 1
    braked = replace(brake, failures=failures, messages=messages)
    if failures < brake.policy.threshold or len(messages) < brake.policy.distinct:
        return braked
    pause = brake.policy.pause(1, draw)
    return replace(braked, opened_at=now, probe_at=now + pause)


def _failed_while_open(brake: Brake, now: float, draw: float) -> Brake:
    # What was under way when it opened fails late and says nothing new.
    if not brake.probing and now < brake.probe_at:
        return brake
    pause = brake.policy.pause(brake.probes + 2, draw)
    return replace(brake, probes=brake.probes + 1, probing=False, probe_at=now + pause)
