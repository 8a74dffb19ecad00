"""The table of profiles."""

# ruff: noqa: INP001, RUF001 -- a script's module; its odd signs are meant

from collections.abc import Callable

from markdown import span, table
from msgspec import structs

from deadletter.core import failure
from deadletter.core.backoff import Exponential, Fixed, Linear
from deadletter.profiles import PROFILES, Profile


def profiles_table() -> str:
    """The five profiles side by side."""
    profiles = list(PROFILES.values())
    rows = [[label, *(tell(profile) for profile in profiles)] for label, tell in _ROWS]
    return table(["", *(f"`{profile.name}`" for profile in profiles)], rows)


def _limit(profile: Profile) -> str:
    policy = profile.policy
    return f"{policy.max_attempts}, {policy.limit_mode}" if policy.max_attempts else "none"


def _backoff(profile: Profile) -> str:
    match profile.policy.backoff:
        case Fixed(seconds):
            return f"{seconds:g} s"
        case Linear(step, cap):
            return f"{step:g} s × n, at most {span(cap)}"
        case Exponential(base, factor, cap, jitter):
            return f"{base:g} s × {factor:g}ⁿ⁻¹, at most {span(cap)}, +0–{jitter:.0%}"
    return "none"


def _consumer(profile: Profile) -> str:
    consumer = profile.dlq_consumer
    if consumer is None:
        return "no"
    after = "deleted" if consumer.discard_failures else f"again in {span(consumer.on_failure)}"
    every = f"every {consumer.interval:g} s, " if consumer.interval else ""
    return f"{every}waits {consumer.wait:g} s; a failure is {after}"


def _kept(profile: Profile) -> str:
    spans = structs.asdict(profile.retention)
    return ", ".join(f"{what} {span(long)}" for what, long in spans.items() if long) or "—"


_ROWS: tuple[tuple[str, Callable[[Profile], str]], ...] = (
    ("attempts", _limit),
    ("backoff", _backoff),
    *(
        (f"{trouble} errors", lambda p, trouble=trouble: p.policy.disposition(trouble))
        for trouble in failure.Trouble
        if trouble not in (failure.Trouble.WORKER_LOST, failure.Trouble.EXPIRED)
    ),
    ("dead-letter mailbox", lambda p: f"`{p.naming}`" if p.naming else "named explicitly"),
    ("DLQ consumer", _consumer),
    ("kept for", _kept),
    ("variables", lambda p: ", ".join(dict.fromkeys(f"`{v.name}`" for v in p.environment)) or "—"),
)
