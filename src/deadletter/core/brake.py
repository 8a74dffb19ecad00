"""
The brake: an outage is not a flood, and a bad deploy is not poison.

When a downstream is down, or a deploy breaks the handler, every message fails and none of them
is the cause. The brake then stops fetching, and single probes find out when to continue. A
`Brake` is a value: each attempt makes the next one, with time and chance as arguments. `judge`
decides by the latest attempts alone.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from sys import maxsize
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .backoff import Exponential
from .errors import ConfigError
from .failure import Trouble
from .text import each_text, shown, stored

MANY: Final = maxsize
"""No limit."""

RELEASE: Final = 86_400.0
"""Seconds for which a released cause does not open the brake again."""

_QUIET: Final = 2  # messages that fail alike are an outage, if nothing else happens

# The downstream answered, even if it refused.
_ANSWERS: Final = frozenset({None, Trouble.PERMANENT, Trouble.LOGICAL})
# Possibly the handler's fault. A malformed, expired or looping message concerns only
# itself, and one that kills its worker runs alone: neither counts here.
_HANDLER: Final = frozenset({Trouble.UNKNOWN, Trouble.PERMANENT})
_HELD: Final = frozenset({Trouble.TRANSIENT, Trouble.UNKNOWN})


class BrakeKind(StrEnum):
    """The kind of problem that keeps the brake open."""

    OUTAGE = "outage"  # transient failures: a downstream is down
    SYSTEMIC = "systemic"  # one cause, nearly everything: the handler is broken


class BrakePolicy(Struct, frozen=True, kw_only=True):
    """The thresholds that open a brake, and the intervals between its probes."""

    threshold: int = 10  # failures among the latest attempts
    distinct: int = 3  # different messages among them; one alone is just poison
    share: float = 0.9  # of the latest attempts that must have failed
    quiet: bool = True  # False: two messages that are given up are no outage yet
    systemic: bool = True  # False: only transient failures open the brake
    hold: float | None = 86_400.0  # seconds that `systemic` lasts; None: no limit
    probe_after: float = 1.0  # seconds, doubling with every failed probe
    cap: float = 30.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        for name in ("threshold", "distinct", "share", "probe_after", "cap", "jitter"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ConfigError(f"BrakePolicy({name}={value!r}) must be a number.")
        if self.hold is not None and not isinstance(self.hold, int | float):
            raise ConfigError(
                f"BrakePolicy(hold={self.hold!r}) must be a number of seconds, or None "
                "for no limit."
            )
        if self.threshold < 1 or self.distinct < 1:
            raise ConfigError(
                f"BrakePolicy(threshold={self.threshold}, distinct={self.distinct}) "
                "would brake without a failure: use 1 or more for both."
            )
        if not 0 < self.share <= 1:
            raise ConfigError(
                f"BrakePolicy(share={self.share}) is not a share of all attempts: "
                "use a number above 0, up to 1; 0.9 is nine of ten."
            )
        if self.hold is not None and not self.hold > 0:
            raise ConfigError(
                f"BrakePolicy(hold={self.hold}) would hold nothing: use seconds "
                "above 0, None for no limit, or systemic=False."
            )
        if self.pause(1, 0.0) <= 0:
            raise ConfigError(
                f"BrakePolicy(probe_after={self.probe_after}, cap={self.cap}) would "
                "probe without a pause: use seconds above 0 for both."
            )

    @property
    def memory(self) -> int:
        """Return how many of the latest attempts are judged."""
        return 2 * max(self.threshold, self.distinct)

    def pause(self, probe: int, draw: float) -> float:
        """Return how long to wait before the `probe`-th probe, in seconds."""
        pauses = Exponential(self.probe_after, 2.0, self.cap, self.jitter)
        return pauses.delay(probe, draw)


class AttemptResult(Struct, frozen=True, gc=False):
    """The result of one attempt, as the brake counts it."""

    message_id: str
    trouble: Trouble | None = None  # None: it was handled
    cause: str = ""  # the same for failures of one cause
    is_first: bool = True  # no attempt has been charged before, and it is no replay
    is_last: bool = False  # its attempts are used up: it would be buried now


class Finding(Struct, frozen=True):
    """The cause for which a brake opens."""

    kind: BrakeKind
    cause: str
    failed: int  # transient attempts of an outage, messages of a broken handler
    of: int


class Brake(Struct, frozen=True):
    """The state of one brake: recent results, and whether messages may be fetched."""

    policy: BrakePolicy = BrakePolicy()
    recent: tuple[AttemptResult, ...] = ()  # oldest first; empty if none of them failed
    finding: Finding | None = None  # while it is open
    opened_at: float = 0.0  # monotonic, as all of these
    proven_at: float | None = None  # the latest probe succeeded then
    probe_at: float = 0.0
    probes: int = 0  # failed since it opened
    probing: bool = False
    passing: tuple[BrakeKind, str] | None = None  # the released cause
    passing_until: float = 0.0

    @property
    def is_open(self) -> bool:
        """Return whether fetching has stopped."""
        return self.finding is not None

    def spares(self, result: AttemptResult) -> bool:
        """Return whether a failure is not the message's fault and costs no attempt."""
        if self.finding is None:
            return False
        is_same = self.finding.cause == result.cause
        by_handler = self.finding.kind is BrakeKind.SYSTEMIC and is_same
        return result.trouble in _HELD or (by_handler and result.trouble in _HANDLER)


def judge(policy: BrakePolicy, recent: Sequence[AttemptResult]) -> Finding | None:
    """Return why to open the brake by the latest attempts, oldest first; None: no reason."""
    return _outage(policy, recent) or _systemic(policy, recent)


def _outage(policy: BrakePolicy, recent: Sequence[AttemptResult]) -> Finding | None:
    failed = [one for one in recent if one.trouble is Trouble.TRANSIENT]
    if len(failed) < _QUIET:
        return None
    answers = sum(one.trouble in _ANSWERS for one in recent)
    of = len(failed) + answers
    messages = len({one.message_id for one in failed})
    is_busy = (
        len(failed) >= policy.threshold
        and messages >= policy.distinct
        and len(failed) >= policy.share * of
    )
    # In a quiet mailbox, check before its first message is buried.
    is_quiet = policy.quiet and failed[-1].is_last and messages >= _QUIET and not answers
    if not (is_busy or is_quiet):
        return None
    ((cause, _),) = Counter(one.cause for one in failed).most_common(1)
    return Finding(BrakeKind.OUTAGE, cause, len(failed), of)


def _systemic(policy: BrakePolicy, recent: Sequence[AttemptResult]) -> Finding | None:
    if not policy.systemic or len(recent) < policy.threshold:
        return None
    failed, handled = _by_message(recent)
    causes = Counter(one.cause for one in failed if one.trouble in _HANDLER)
    if not causes:
        return None
    ((cause, count),) = causes.most_common(1)
    of = len(failed) + handled
    if count < max(policy.threshold, policy.distinct) or count < policy.share * of:
        return None
    return Finding(BrakeKind.SYSTEMIC, cause, count, of)


def _by_message(recent: Sequence[AttemptResult]) -> tuple[Sequence[AttemptResult], int]:
    """Return the latest failure of each message that still fails, and the number handled."""
    failed: dict[str, AttemptResult] = {}
    handled = 0
    for one in recent:
        failed.pop(one.message_id, None)
        if one.trouble is None or one.trouble is Trouble.LOGICAL:
            handled += 1
        else:
            failed[one.message_id] = one
    return list(failed.values()), handled


def may_fetch(brake: Brake, now: float) -> int:
    """Return how many messages may be fetched now: MANY, 1 (a probe) or 0."""
    if not brake.is_open:
        return MANY
    return 1 if now >= brake.probe_at else 0


def on_probe(brake: Brake, now: float, draw: float) -> Brake:
    """Record that a probe is in progress; if it gets lost, another is due after a pause."""
    pause = brake.policy.pause(brake.probes + 1, draw)
    return replace(brake, probing=True, probe_at=now + pause)


def on_time(brake: Brake, now: float) -> Brake:
    """Close a brake that has nothing left to wait for."""
    policy, finding = brake.policy, brake.finding
    if finding is None:
        return brake
    if brake.proven_at is not None and now - brake.proven_at >= policy.cap:
        return closed(brake)
    is_limited = finding.kind is BrakeKind.SYSTEMIC and policy.hold is not None
    if is_limited and now - brake.opened_at >= (policy.hold or 0.0):
        return released(brake, now)
    return brake


def on_result(brake: Brake, result: AttemptResult, now: float, draw: float) -> Brake:
    """Record the result of an attempt, which may open or close the brake."""
    if result.trouble is None or result.trouble is Trouble.LOGICAL:
        return _on_success(brake, result, now)
    if not _says_something(result, is_open=brake.is_open):
        return brake
    recent = (*brake.recent, result)[-brake.policy.memory :]
    seen = replace(brake, recent=recent)
    if brake.finding is not None:
        return _failed_while_open(seen, result, now, draw)
    finding = judge(brake.policy, recent)
    if finding is None or _is_passing(brake, finding, now):
        return seen
    pause = brake.policy.pause(1, draw)
    return replace(seen, finding=finding, opened_at=now, probe_at=now + pause, passing=None)


def closed(brake: Brake) -> Brake:
    """Return a closed brake that counts from zero."""
    return Brake(brake.policy, passing=brake.passing, passing_until=brake.passing_until)


def released(brake: Brake, now: float) -> Brake:
    """Return a closed brake that ignores this cause for a day."""
    if brake.finding is None:
        return brake
    passing = (brake.finding.kind, brake.finding.cause)
    return Brake(brake.policy, passing=passing, passing_until=now + RELEASE)


def _says_something(result: AttemptResult, *, is_open: bool) -> bool:
    if result.trouble is Trouble.TRANSIENT:
        return True
    # Retries are no new evidence: a few messages that keep failing are poison.
    return result.trouble in _HANDLER and (is_open or result.is_first)


def _is_passing(brake: Brake, finding: Finding, now: float) -> bool:
    if brake.passing is None or now >= brake.passing_until:
        return False
    kind, cause = brake.passing
    return kind is finding.kind and (kind is BrakeKind.OUTAGE or cause == finding.cause)


def _on_success(brake: Brake, result: AttemptResult, now: float) -> Brake:
    if not brake.recent:
        return brake
    if brake.finding is not None and brake.finding.kind is BrakeKind.OUTAGE:
        return closed(brake)  # the downstream is up again
    recent = (*brake.recent, result)[-brake.policy.memory :]
    failed, handled = _by_message(recent)
    if brake.finding is None:
        return replace(brake, recent=recent if failed else ())
    if len(failed) < brake.policy.share * (len(failed) + handled):
        return closed(brake)
    return replace(brake, recent=recent, probing=False, probe_at=now, proven_at=now)


def _failed_while_open(brake: Brake, result: AttemptResult, now: float, draw: float) -> Brake:
    if brake.finding is None or not brake.spares(result):
        is_outage = brake.finding is None or brake.finding.kind is BrakeKind.OUTAGE
        return closed(brake) if is_outage else brake  # the downstream answered
    # Attempts that were in progress when it opened are no new evidence.
    if not brake.probing and now < brake.probe_at:
        return brake
    pause = brake.policy.pause(brake.probes + 2, draw)
    return replace(
        brake, probes=brake.probes + 1, probing=False, proven_at=None, probe_at=now + pause
    )


# Windows: when a brake was open, why, and what it held meanwhile.
#
# Each worker writes its own. Those of one cause that overlap, or follow each other
# within minutes, are shown to people as one.

SAMPLE: Final = 20  # ids of held messages that a window names
KEPT: Final = 10_000  # windows an office keeps; the oldest go first
SILENCE: Final = timedelta(minutes=3)  # after this long without news, its worker is gone
GAP: Final = timedelta(minutes=5)  # between windows that are shown as one


class WindowState(StrEnum):
    """The states of a brake window."""

    OPEN = "open"
    CLOSED = "closed"
    SILENT = "silent"  # never closed, and without news of its worker


class Release(Struct, frozen=True):
    """A person's decision to continue: messages are judged by their policy again."""

    actor: str
    reason: str
    at: datetime


class BrakeWindow(Struct, frozen=True, kw_only=True):
    """One period during which a brake was open."""

    id: str
    mailbox: str
    kind: BrakeKind
    cause: str
    version: str  # of the application that ran then
    text: str  # the evidence, as a sentence
    opened_at: datetime
    seen_at: datetime  # the latest news of it
    closed_at: datetime | None = None
    ending: str = ""  # why it closed
    held: int = 0  # messages that were released, without charging an attempt
    attempts: int = 0  # that were not charged
    message_ids: tuple[str, ...] = ()  # the first few of those held
    workers: int = 1
    release: Release | None = None

    @property
    def until(self) -> datetime:
        """Return when it ended, or its latest news."""
        return self.closed_at or self.seen_at

    def state(self, now: datetime) -> WindowState:
        """Return its state at `now`."""
        if self.closed_at is not None:
            return WindowState.CLOSED
        is_silent = now - self.seen_at > SILENCE
        return WindowState.SILENT if is_silent else WindowState.OPEN


def is_released(windows: Iterable[BrakeWindow], kind: BrakeKind, cause: str, now: datetime) -> bool:
    """Return whether somebody released this cause within the last day."""
    since = now - timedelta(seconds=RELEASE)
    return any(
        one.release is not None
        and one.release.at > since
        and one.kind is kind
        and (kind is BrakeKind.OUTAGE or one.cause == cause)
        for one in windows
    )


def merged(windows: Iterable[BrakeWindow]) -> Sequence[BrakeWindow]:
    """Return windows as people see them, latest first: one for each period and cause."""
    shown: dict[tuple[str, BrakeKind, str], list[BrakeWindow]] = {}
    for one in sorted(windows, key=lambda window: (window.opened_at, window.id)):
        same = shown.setdefault((one.mailbox, one.kind, one.cause), [])
        if same and one.opened_at - same[-1].until <= GAP:
            same[-1] = _joined(same[-1], one)
        else:
            same.append(one)
    found = [one for same in shown.values() for one in same]
    return sorted(found, key=lambda window: (window.opened_at, window.id), reverse=True)


def _joined(first: BrakeWindow, second: BrakeWindow) -> BrakeWindow:
    is_over = first.closed_at is not None and second.closed_at is not None
    latest = second if second.until >= first.until else first
    return replace(
        first,
        seen_at=max(first.seen_at, second.seen_at),
        closed_at=latest.closed_at if is_over else None,
        ending=latest.ending if is_over else "",
        held=first.held + second.held,
        attempts=first.attempts + second.attempts,
        message_ids=(*first.message_ids, *second.message_ids)[:SAMPLE],
        workers=first.workers + second.workers,
        release=second.release or first.release,
    )


def encode(window: BrakeWindow) -> bytes:
    """Encode a window for a store, without its release, which is written separately."""
    plain = msgspec.to_builtins(replace(window, release=None))
    return msgspec.json.encode(each_text(stored, plain))


def decode(document: bytes, release: bytes | None) -> BrakeWindow:
    """Decode a window and its release."""
    plain = each_text(shown, msgspec.json.decode(document))
    window = msgspec.convert(plain, BrakeWindow)
    return replace(window, release=decode_release(release) if release else None)


def encode_release(release: Release) -> bytes:
    """Encode a release for a store."""
    return msgspec.json.encode(each_text(stored, msgspec.to_builtins(release)))


def decode_release(document: bytes) -> Release:
    """Decode a release."""
    return msgspec.convert(each_text(shown, msgspec.json.decode(document)), Release)
