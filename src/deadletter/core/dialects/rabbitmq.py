"""RabbitMQ's own dialects: `x-death`, and `x-opt-deaths` of AMQP 1.0."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from ..decision import Reason
from ..failure import Trouble
from .found import Found, Told
from .values import (
    count,
    digits,
    document,
    mapping,
    millis,
    moment,
    named,
    number,
    stamp,
    words,
)

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
_MOST_SHOWN: Final = 10  # deaths of a chain


class Way(Struct, frozen=True, array_like=True):
    """How a message came to the queue that it belongs to, before it died there."""

    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    expiration: str = ""  # that it had in that queue


def way_of(found: Found) -> Way:
    """
    Read the way of a message from the whole chain of its deaths.

    The latest death that a consumer or a full queue caused is the one at home. Queues
    where messages only wait until they expire are delays, unless there is no other.
    """
    deaths = _deaths(found, "x-death") or _deaths(found, "x-opt-deaths")
    return _way(deaths, found.text("x-first-death-queue"))


def _way(deaths: list[dict[str, Any]], first_queue: str) -> Way:
    at_home = [death for death in deaths if words(death.get("reason")) != "expired"]
    home = next(iter(at_home or deaths), None)
    if home is None:
        return Way(first_queue)
    keys = home.get("routing-keys")
    return Way(
        queue=words(home.get("queue")) or first_queue,
        exchange=words(home.get("exchange")),
        routing_key=words(keys[0]) if isinstance(keys, list) and keys else "",
        expiration=words(home.get("original-expiration")),
    )


def x_death(found: Found) -> Told | None:
    """Where it died at home, and why it died last."""
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
    way = _way(deaths, found.text("x-first-death-queue"))
    deaths_told = named(found.headers, "x-first-death-", "x-last-death-")
    reason, said = _REASONS.get(why, (Reason.OPERATOR, why))
    times = sorted(time for death in deaths for time in _times(death))
    return Told(
        dialect=dialect,
        source=way.queue,
        reason=reason,
        reason_text=f"dead-lettered by RabbitMQ: {said}" if said else "",
        trouble=Trouble.EXPIRED if reason is Reason.EXPIRED else None,
        attempts=sum(_count(d) for d in deaths if d.get("reason") in _TRIED),
        first_failed_at=times[0] if times else None,
        dead_at=times[-1] if times else None,
        fields={
            "queue": way.queue,
            "exchange": way.exchange,
            "routing_key": way.routing_key,
            "reason": why,
            "count": digits(sum(map(_count, deaths)) or None),
            "first_died_at": stamp(times[0] if times else None),
            "last_died_at": stamp(times[-1] if len(times) > 1 else None),
            "expiration": way.expiration,
            "deaths": _chain(deaths),
        },
        retold=deaths_told | ({dialect} if deaths else frozenset()),
        drops=_OURS | deaths_told,
    )


def _chain(deaths: list[dict[str, Any]]) -> str:
    """Return a chain of several deaths, the latest first, a line each."""
    if len(deaths) < 2:
        return ""
    lines = [
        f"{words(death.get('queue'))}: {words(death.get('reason'))}, {_count(death)}x"
        for death in deaths[:_MOST_SHOWN]
    ]
    more = len(deaths) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _deaths(found: Found, name: str) -> list[dict[str, Any]]:
    told = document(found.value(name))
    return [mapping(death) for death in told][:100] if isinstance(told, list) else []


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
