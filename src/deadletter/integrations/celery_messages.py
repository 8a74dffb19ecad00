"""
Messages of Celery's workers, as their broker had them.

The worker's main process takes from a message what the broker knows of it, and passes that on
with the task. The process that runs the task makes of it what a drain would have found.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from amqp import Message as AmqpMessage
from kombu.utils.json import dumps

from deadletter.brokers.rabbitmq.drain_properties import as_bytes, kept, read, value_of
from deadletter.core.origin import words
from deadletter.intake.dialects import Found
from deadletter.intake.dialects.brokers import Way
from deadletter.intake.dialects.celery_envelope import found_in
from deadletter.intake.dialects.frameworks import RETRIES

from .stories import STORY_NAME

WIRE: Final = "dlq-wire"
"""Name under which a task's properties have what its broker knows of it"""

_STEPS: Final = (0, 3, 6, 9)  # priorities that have a list of their own on Redis
_DELIVERY: Final = "redelivered"  # added by kombu to what it hands out once more


def wire_of(message: Any, queue: str) -> dict[str, Any]:
    """Return what the broker knows of a message, for `found_of`; it can be pickled."""
    raw = getattr(message, "_raw", None)
    if raw is not None:  # Redis, and the other brokers that kombu imitates AMQP on
        return {"queue": queue, "envelope": raw}
    info = message.delivery_info or {}
    return {
        "queue": queue,
        "properties": dict(message.properties or {}),
        "body": _bytes(message.body),
        "exchange": words(info.get("exchange")),
        "routing_key": words(info.get("routing_key")),
    }


def found_of(wire: Mapping[str, Any], about: Mapping[str, str]) -> Found:
    """Return a message as a drain would have found it in its own queue."""
    queue = wire["queue"]
    found = _in_envelope(wire["envelope"], queue) if "envelope" in wire else _of_amqp(wire)
    return Found(
        kind=found.kind,
        place=f"celery:{queue}",
        source=queue,
        id=found.id,
        body=found.body,
        headers=found.headers,
        about={**found.about, **about},
        content_type=found.content_type,
        reply_to=found.reply_to,
        at=found.at,
        raw=found.raw,
    )


def _in_envelope(raw: Mapping[str, Any], queue: str) -> Found:
    headers = {k: v for k, v in raw["headers"].items() if k not in (_DELIVERY, STORY_NAME)}
    properties = dict(raw["properties"])
    info = properties.get("delivery_info")
    if isinstance(info, dict):
        properties["delivery_info"] = {k: v for k, v in info.items() if k != _DELIVERY}
    told = {**raw, "headers": headers, "properties": properties}
    envelope: str = dumps(told)  # type: ignore[no-untyped-call]
    return found_in(queue, envelope.encode("utf-8", "surrogatepass"), _step(properties))


def _step(properties: Mapping[str, Any]) -> int:
    priority = properties.get("priority")
    if not isinstance(priority, int):
        return 0
    return bisect_right(_STEPS, min(max(priority, 0), _STEPS[-1])) - 1


def _of_amqp(wire: Mapping[str, Any]) -> Found:
    properties = dict(wire["properties"])
    table = {
        k: v for k, v in (properties.get("application_headers") or {}).items() if k != STORY_NAME
    }
    retries = table.get("retries")
    table["retries"] = 0  # a copy counts its own, as on Redis
    properties["application_headers"] = table
    header = bytes(12) + AmqpMessage(b"", **properties)._serialize_properties()  # noqa: SLF001
    amqp = read(header)
    assert amqp is not None  # its own client wrote it
    way = Way(queue=wire["queue"], exchange=wire["exchange"], routing_key=wire["routing_key"])
    return Found(
        kind="rabbitmq",
        place=wire["queue"],
        id=words(table.get("id")),
        body=wire["body"],
        about={RETRIES: words(retries)},
        headers=tuple((name, as_bytes(value_of(value))) for name, value in amqp.headers or ()),
        at=amqp.timestamp,
        content_type=amqp.text("content_type"),
        reply_to=amqp.text("reply_to"),
        raw=kept(amqp, way),
    )


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)
