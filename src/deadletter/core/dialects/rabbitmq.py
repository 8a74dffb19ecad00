"""RabbitMQ's own dialect: `x-death` and its companions."""

from datetime import datetime
from typing import Any, Final

from ..decision import Reason
from ..failure import Trouble
from .found import Found, Told
from .values import count, document, mapping, moment, named, words

_REASONS: Final = {
    "rejected": (Reason.REJECTED, "its consumer rejected it"),
    "expired": (Reason.EXPIRED, "it expired"),
    "maxlen": (Reason.OPERATOR, "its queue was full"),
    "delivery_limit": (Reason.ATTEMPTS_EXHAUSTED, "its delivery limit was reached"),
}
_TRIED: Final = frozenset({"rejected", "delivery_limit"})
_OURS: Final = frozenset({"x-death", "x-delivery-count", "x-acquired-count"})


def x_death(found: Found) -> Told | None:
    """
    Where it died first and why it died last.

    The first queue is where it belongs: the others are where it waited.
    """
    deaths = _deaths(found)
    source = found.text("x-first-death-queue") or _queue(deaths[-1:])
    if not deaths and not source:
        return None
    why = found.text("x-last-death-reason") or _why(deaths)
    reason, said = _REASONS.get(why, (Reason.OPERATOR, why))
    times = sorted(time for death in deaths if (time := _time(death)) is not None)
    return Told(
        dialect="x-death",
        source=source,
        reason=reason,
        reason_text=f"dead-lettered by RabbitMQ: {said}" if said else "",
        trouble=Trouble.EXPIRED if reason is Reason.EXPIRED else None,
        attempts=sum(_count(d) for d in deaths if d.get("reason") in _TRIED),
        first_failed_at=times[0] if times else None,
        dead_at=times[-1] if times else None,
        drops=_OURS | named(found.headers, "x-first-death-", "x-last-death-"),
    )


def _deaths(found: Found) -> list[dict[str, Any]]:
    told = document(found.value("x-death"))
    return [mapping(death) for death in told][:100] if isinstance(told, list) else []


def _queue(deaths: list[dict[str, Any]]) -> str:
    return words(deaths[0].get("queue")) if deaths else ""


def _why(deaths: list[dict[str, Any]]) -> str:
    return words(deaths[0].get("reason")) if deaths else ""


def _count(death: dict[str, Any]) -> int:
    return count(words(death.get("count"))) or 1


def _time(death: dict[str, Any]) -> datetime | None:
    return moment(words(death.get("time")))
