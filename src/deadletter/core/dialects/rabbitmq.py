"""RabbitMQ's own dialects: `x-death`, and `x-opt-deaths` of AMQP 1.0."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from ..decision import Reason
from ..failure import Trouble
from .found import Found, Told
from .values import count, document, mapping, millis, moment, named, number, words

_REASONS: Final = {
    "rejected": (Reason.REJECTED, "its consumer rejected it"),
    "expired": (Reason.EXPIRED, "it expired"),
    "maxlen": (Reason.OPERATOR, "its queue was full"),
    "delivery_limit": (Reason.ATTEMPTS_EXHAUSTED, "its delivery limit was reached"),
}
_TRIED: Final = frozenset({"rejected", "delivery_limit"})
_OURS: Final = frozenset(
    {"x-death", "x-opt-deaths", "x-delivery-count", "x-acquired-count"}
)
_TIMES: Final = ("time", "first-time", "last-time")


def x_death(found: Found) -> Told | None:
    """
    Where it died first and why it died last.

    The first queue is where it belongs: the others are where it waited.
    """
    deaths = _deaths(found, "x-death")
    if not deaths and not found.value("x-first-death-queue"):
        return None
    return _died("x-death", found, deaths)


def opt_deaths(found: Found) -> Told | None:
    """The same as AMQP 1.0 has it: an annotation, with two times for each death."""
    deaths = _deaths(found, "x-opt-deaths")
    return _died("x-opt-deaths", found, deaths) if deaths else None


def _died(dialect: str, found: Found, deaths: list[dict[str, Any]]) -> Told:
    why = found.text("x-last-death-reason") or _why(deaths)
    reason, said = _REASONS.get(why, (Reason.OPERATOR, why))
    times = sorted(time for death in deaths for time in _times(death))
    return Told(
        dialect=dialect,
        source=found.text("x-first-death-queue") or _queue(deaths[-1:]),
        reason=reason,
        reason_text=f"dead-lettered by RabbitMQ: {said}" if said else "",
        trouble=Trouble.EXPIRED if reason is Reason.EXPIRED else None,
        attempts=sum(_count(d) for d in deaths if d.get("reason") in _TRIED),
        first_failed_at=times[0] if times else None,
        dead_at=times[-1] if times else None,
        drops=_OURS | named(found.headers, "x-first-death-", "x-last-death-"),
    )


def _deaths(found: Found, name: str) -> list[dict[str, Any]]:
    told = document(found.value(name))
    return [mapping(death) for death in told][:100] if isinstance(told, list) else []


def _queue(deaths: list[dict[str, Any]]) -> str:
    return words(deaths[0].get("queue")) if deaths else ""


def _why(deaths: list[dict[str, Any]]) -> str:
    return words(deaths[0].get("reason")) if deaths else ""


def _count(death: dict[str, Any]) -> int:
    return count(words(death.get("count"))) or 1


def _times(death: dict[str, Any]) -> Iterator[datetime]:
    """When, as a date or in milliseconds, whichever its bridge has made of it."""
    for name in _TIMES:
        said = words(death.get(name))
        time = moment(said) if number(said) is None else millis(number(said))
        if time is not None:
            yield time
