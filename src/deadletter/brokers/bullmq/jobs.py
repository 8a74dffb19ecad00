"""
Jobs out of messages, messages out of jobs.

A job that a producer of BullMQ has added is a message, too: its body is its data as it
stands, its id the job's; name and options are the headers `bullmq-name` and
`bullmq-opts`. Whoever sends a message with these headers says what the job has. The
parent of a flow that is to fail with its child says so in `bullmq-failure`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from deadletter.brokers.redis_common.attempt_field import count_attempt, restore_data
from deadletter.brokers.redis_common.job_envelope import opened, sealed
from deadletter.brokers.redis_common.script_runner import when_stored
from deadletter.core.errors import ConfigError, Refused
from deadletter.core.message import Delivery, Lineage, Message
from deadletter.core.text import encode_document
from deadletter.kit import EPOCH, micros
from deadletter.ports.broker import Released

NAME: Final = "bullmq-name"
OPTIONS: Final = "bullmq-opts"
FAILURE: Final = "bullmq-failure"

# Options of the original job that a copy does not have: its time, and its parent.
_ITS_OWN: Final = frozenset(
    {
        *("delay", "jobId", "timestamp", "repeat", "repeatJobKey", "prevMillis"),
        *("parent", "lifo", "de"),
    }
)
_MOST: Final = 2_097_152  # BullMQ knows no priority above
_ALONE: Final = b"1"
_DOOMED: Final = b"2"

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_decode_lineage: Final = msgspec.json.Decoder(Lineage).decode


class Job(NamedTuple):
    """A claimed job; the fields have the order of the scripts' answers."""

    id: bytes
    data: bytes
    envelope: bytes
    name: bytes
    options: bytes
    timestamp: bytes
    started: bytes  # how often
    charged: bytes  # how many of the earlier ones
    first_at: bytes
    story: bytes
    expires_at: bytes
    held: bytes
    failure: bytes  # why BullMQ would have it fail
    lineage: bytes  # the letter that it is a copy of, if an intake put it back
    scheduler: bytes
    counted: bytes  # what the data was before its attempts were counted in it


def arguments(mailbox: str, message: Message) -> tuple[str | bytes | int, ...]:
    """Return the arguments of the sending script for a message."""
    data, envelope = sealed(message)
    options = _options(message)
    priority = options.get("priority", 0)
    if type(priority) is not int or not 0 <= priority <= _MOST:
        raise Refused(f"the priority in {OPTIONS} is a number from 0 to {_MOST}")
    expires = "" if message.expires_at is None else micros(message.expires_at)
    name = message.header(NAME) or mailbox
    return data, envelope, name, _encode(options), priority, expires


def deliveries(mailbox: str, token: str, jobs: Sequence[Job]) -> list[Delivery]:
    """Return the deliveries of claimed jobs."""
    return [_delivery(mailbox, token, job) for job in jobs]


def _delivery(mailbox: str, token: str, job: Job) -> Delivery:
    started, this = int(job.started), 0 if job.held == _DOOMED else 1
    return Delivery(
        message=_message(job),
        mailbox=mailbox,
        attempt=started,
        spared=max(0, started - this - int(job.charged)),
        suspect=job.held == _ALONE,
        position=_text(job.id),
        first_received_at=when_stored(job.first_at) if started else None,
        history=_text(job.story),
        receipt=(job.id, token),
    )


def _message(job: Job) -> Message:
    if job.counted:
        job = job._replace(data=restore_data(job.data, job.counted))
    ours = opened(job.envelope, job.data) if job.envelope else None
    message = ours or _foreign(job)
    if message.expires_at is None and job.expires_at:
        return msgspec.structs.replace(message, expires_at=when_stored(job.expires_at))
    return message


def _foreign(job: Job) -> Message:
    trace = _trace(job.options)
    return Message(
        id=_text(job.id),
        body=job.data,
        sent_at=added_at(job.timestamp) or when_stored(job.first_at),
        headers=tuple(_headers(job)),
        content_type="application/json",
        traceparent=trace.get("traceparent"),
        tracestate=trace.get("tracestate"),
        lineage=_lineage(job.lineage),
    )


def _lineage(given: bytes) -> Lineage | None:
    try:
        return _decode_lineage(given) if given else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _headers(job: Job) -> Iterator[tuple[str, bytes]]:
    yield NAME, job.name
    yield OPTIONS, job.options
    if job.failure:
        yield FAILURE, job.failure


def added_at(timestamp: bytes) -> datetime | None:
    """Return when a job was added, by its producer's clock; None if it is not a time."""
    try:
        return EPOCH + timedelta(milliseconds=float(timestamp))
    except (ValueError, OverflowError):
        return None


def _options(message: Message) -> dict[str, Any]:
    given = message.header(OPTIONS)
    try:
        told = _decode(given) if given else {}
    except msgspec.MsgspecError as error:
        raise Refused(f"the header {OPTIONS} must be a JSON object: {error}") from error
    options = {name: value for name, value in told.items() if name not in _ITS_OWN}
    if message.traceparent is not None:
        carrier = {"traceparent": message.traceparent}
        if message.tracestate is not None:
            carrier["tracestate"] = message.tracestate
        options["tm"] = encode_document(carrier).decode()
    return options


def _trace(options: bytes) -> dict[str, str]:
    """Return the trace context in a job's options, where BullMQ's telemetry puts it."""
    try:
        carrier = _decode(_decode(options).get("tm") or "{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, RecursionError):
        return {}
    return {name: value for name, value in carrier.items() if isinstance(value, str)}


def count_release(released: Released, field: str) -> tuple[bytes, bytes]:
    """Return a job's data with its next attempt, and what it was; both empty if it stays."""
    if not (field and released.charged):
        return b"", b""
    delivery = released.delivery
    return count_attempt(delivery.message.body, field, delivery.charged) or (b"", b"")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


COMPLETED: Final = "remove_on_complete"
FAILED: Final = "remove_on_fail"


class Retention(Struct, frozen=True):
    """Number of ended jobs to keep, as JSON like BullMQ's options; `false` keeps all."""

    completed: bytes = b"false"
    failed: bytes = b"false"


def read_retention(completed: str, failed: str) -> Retention:
    """Read the two parameters of a URL."""
    return Retention(_read(COMPLETED, completed), _read(FAILED, failed))


def _read(name: str, text: str) -> bytes:
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        value = None
    if not _is_one(value):
        raise ConfigError(
            f"{name} in the URL must be true, false, a number of jobs, or"
            f' {{"age": seconds, "count": jobs}}, got {text!a}'
        )
    return msgspec.json.encode(value)


def _is_one(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value) and all(
            name in {"age", "count"} and _is_count(number) for name, number in value.items()
        )
    return isinstance(value, bool) or _is_count(value)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
