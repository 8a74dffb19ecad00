"""Dialects of .NET: MassTransit, NServiceBus and Wolverine."""

from typing import Final
from urllib.parse import unquote

from .found import Found, Told
from .kafka import record
from .values import count, millis, moment, named, number

_FAULT: Final = "MT-Fault-"
_BUS: Final = "NServiceBus."
_WOLVERINE: Final = frozenset(
    {
        *("exception-type", "exception-message", "exception-stack", "failed-at"),
        *("original-destination", "original-partition", "original-offset", "attempts"),
    }
)


def masstransit(found: Found) -> Told | None:
    """MassTransit's `MT-Fault-*`, in the queue `<name>_error` or `<name>_skipped`."""
    names = named(found.headers, _FAULT, "MT-Reason")
    if not names:
        return None
    text = found.text
    address = text(f"{_FAULT}InputAddress").partition("?")[0]
    retries = text(f"{_FAULT}RetryCount")
    return Told(
        dialect="masstransit",
        source=unquote(address.rpartition("/")[2]) or _endpoint(found.place),
        reason_text=text("MT-Reason"),
        error_type=text(f"{_FAULT}ExceptionType"),
        error_text=text(f"{_FAULT}Message"),
        stack=text(f"{_FAULT}StackTrace"),
        attempts=count(retries) + 1 if retries else 0,
        dead_at=moment(text(f"{_FAULT}Timestamp")),
        consumer=text(f"{_FAULT}ConsumerType"),
        fields={
            "input_address": text(f"{_FAULT}InputAddress"),
            "consumer_type": text(f"{_FAULT}ConsumerType"),
            "message_type": text(f"{_FAULT}MessageType"),
            "reason": text("MT-Reason"),
            "retries": retries,
        },
        retold=names
        & {
            *(f"{_FAULT}{n}" for n in ("InputAddress", "ConsumerType", "MessageType")),
            *("MT-Reason", f"{_FAULT}RetryCount"),
        },
        drops=names,
    )


def nservicebus(found: Found) -> Told | None:
    """NServiceBus' `FailedQ` and `ExceptionInfo`; the latter is not sent back."""
    info = f"{_BUS}ExceptionInfo."
    names = named(found.headers, info)
    text = found.text
    failed_queue = text(f"{_BUS}FailedQ")
    if not names and not failed_queue:
        return None
    retries = text(f"{_BUS}Retries")
    return Told(
        dialect="nservicebus",
        source=failed_queue.partition("@")[0],
        message_id=text(f"{_BUS}MessageId"),
        error_type=text(f"{info}ExceptionType"),
        error_text=text(f"{info}Message"),
        stack=text(f"{info}StackTrace"),
        attempts=count(retries) + 1 if retries else 0,
        dead_at=moment(text(f"{_BUS}TimeOfFailure")),
        consumer=text(f"{_BUS}ProcessingEndpoint"),
        fields={
            "failed_queue": failed_queue,
            "endpoint": text(f"{_BUS}ProcessingEndpoint"),
            "exception": text(f"{info}ExceptionType"),
            "cause": text(f"{info}InnerExceptionType"),
            "retries": retries,
        },
        retold=frozenset(
            {
                *(f"{_BUS}FailedQ", f"{_BUS}Retries", f"{info}ExceptionType"),
                f"{info}InnerExceptionType",
            }
        ),
        drops=names
        | {f"{_BUS}{name}" for name in ("FailedQ", "TimeOfFailure", "Retries")},
    )


def wolverine(found: Found) -> Told | None:
    """
    Wolverine's `exception-*` and `failed-at`, the same on every transport.

    Its count of attempts is not sent back: it would go on counting.
    """
    text = found.text
    if not text("exception-type") or not text("failed-at"):
        return None  # names that anybody may use: only together they are its own
    address = text("original-destination").partition("?")[0]
    return record(
        "wolverine",
        unquote(address.rstrip("/").rpartition("/")[2]),
        number(text("original-partition")),
        number(text("original-offset")),
        error_type=text("exception-type"),
        error_text=text("exception-message"),
        stack=text("exception-stack"),
        attempts=count(text("attempts")),
        dead_at=millis(number(text("failed-at"))),
        fields={"destination": text("original-destination")},
        retold=frozenset(
            {"original-destination", "original-partition", "original-offset"}
        ),
        drops=_WOLVERINE,
    )


def _endpoint(place: str) -> str:
    for ending in ("_error", "_skipped"):
        if place.endswith(ending):
            return place.removesuffix(ending)
    return ""
