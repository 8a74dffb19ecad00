"""
Messages of the wire as values, and the replies to errors.

One type serves JSON and protobuf: the names are those of `querator.proto`, or the same in
camelCase. In JSON an unknown name is an error, since it is probably a typing mistake.
"""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from litestar.exceptions import HTTPException
from msgspec import UNSET, Meta, Struct, UnsetType, field

from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.server.problems import problem_of

from .waiting_requests import ShuttingDown, TryAgain

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Time = Annotated[datetime, Meta(tz=True)]


class WireMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the wire."""


class Reply(WireMessage, frozen=True):
    """The reply to calls without data, and to every call that failed."""

    code: Int
    code_text: str
    message: str = ""
    details: dict[str, str] = field(default_factory=dict)


class QueueName(WireMessage, frozen=True):
    """The name of a queue, for calls without other fields: info, stats, reload."""

    queue_name: str = ""


class Partition(WireMessage, frozen=True):
    """One partition of a queue."""

    partition: Int = 0


class QueueInfo(WireMessage, frozen=True):
    """Options of a queue. In an update, missing fields stay unchanged."""

    queue_name: str = ""
    created_at: Time | UnsetType | None = UNSET
    updated_at: Time | UnsetType | None = UNSET
    dead_queue: str | UnsetType = UNSET
    reference: str | UnsetType = UNSET
    lease_timeout: str | UnsetType = UNSET
    expire_timeout: str | UnsetType = UNSET
    max_attempts: Int | UnsetType = UNSET
    requested_partitions: Int | UnsetType = UNSET
    partitions: list[Partition] = field(default_factory=list)
    namespace: str | UnsetType = UNSET
    limit_mode: str | UnsetType = UNSET


class ListQueues(WireMessage, frozen=True):
    """The queues to list."""

    pivot: str = ""
    limit: Int = 0
    namespace: str = ""


class QueueList(WireMessage, frozen=True):
    """Queues by name."""

    items: list[QueueInfo]


class DeleteQueue(WireMessage, frozen=True):
    """The queue to delete, and whether it may be a dead queue in use."""

    queue_name: str = ""
    force: bool = False


class ProduceItem(WireMessage, frozen=True, gc=False):
    """A new item: bytes, or text if there are no bytes."""

    encoding: str = ""
    kind: str = ""
    reference: str = ""
    enqueue_at: Time | UnsetType | None = UNSET
    payload: bytes = field(default=b"", name="bytes")
    utf8: str = ""


class ProduceRequest(WireMessage, frozen=True):
    """Items to add."""

    queue_name: str = ""
    request_timeout: str = ""
    items: list[ProduceItem] = field(default_factory=list)


class LeaseRequest(WireMessage, frozen=True):
    """The number of items to lease, and how long the client waits for them."""

    queue_name: str = ""
    batch_size: Int = 0
    client_id: str = ""
    request_timeout: str = ""


class LeaseItem(WireMessage, frozen=True, gc=False):
    """A leased item."""

    encoding: str
    kind: str
    reference: str
    id: str
    attempts: Int
    lease_deadline: Time | UnsetType
    payload: bytes = field(name="bytes")


class LeaseReply(WireMessage, frozen=True):
    """Leased items, all of one partition."""

    queue_name: str
    partition: Int
    items: list[LeaseItem]


class CompleteRequest(WireMessage, frozen=True):
    """Leased items to complete."""

    queue_name: str = ""
    partition: Int = 0
    request_timeout: str = ""
    ids: list[str] = field(default_factory=list)


class RetryItem(WireMessage, frozen=True, gc=False):
    """A leased item to return to its queue."""

    id: str = ""
    retry_at: Time | UnsetType | None = UNSET
    dead: bool = False


class RetryRequest(WireMessage, frozen=True):
    """Leased items to return to their queue."""

    queue_name: str = ""
    partition: Int = 0
    items: list[RetryItem] = field(default_factory=list)


class PartitionStats(WireMessage, frozen=True):
    """Statistics of one partition."""

    partition: Int
    total: Int
    total_leased: Int
    failures: Int
    average_age: str
    average_leased_age: str
    scheduled: Int


class LogicalStats(WireMessage, frozen=True):
    """Waiting requests to a queue, and statistics of its partitions."""

    produce_waiting: Int
    lease_waiting: Int
    complete_waiting: Int
    in_flight: Int
    partitions: list[PartitionStats]


class Stats(WireMessage, frozen=True):
    """Statistics of a queue."""

    queue_name: str
    logical_queues: list[LogicalStats] = field(name="logicalQueues")


class ClearRequest(WireMessage, frozen=True):
    """The items of a queue to delete."""

    queue_name: str = ""
    scheduled: bool = False
    queue: bool = False
    destructive: bool = False


class StorageItem(WireMessage, frozen=True, gc=False):
    """An item as it is stored."""

    id: str = ""
    source_id: str = ""
    is_leased: bool = False
    lease_deadline: Time | UnsetType | None = UNSET
    expire_deadline: Time | UnsetType | None = UNSET
    dead_deadline: Time | UnsetType | None = UNSET
    created_at: Time | UnsetType | None = UNSET
    updated_at: Time | UnsetType | None = UNSET
    enqueue_at: Time | UnsetType | None = UNSET
    attempts: Int = 0
    max_attempts: Int = 0
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""


class ListItems(WireMessage, frozen=True):
    """The items to list."""

    queue_name: str = ""
    partition: Int = 0
    pivot: str = ""
    limit: Int = 0


class ItemList(WireMessage, frozen=True):
    """Items as they are stored."""

    items: list[StorageItem]


class ImportItems(WireMessage, frozen=True):
    """Items to store as they are."""

    queue_name: str = ""
    partition: Int = 0
    items: list[StorageItem] = field(default_factory=list)


class ImportReply(WireMessage, frozen=True):
    """Imported items as they are stored; protobuf has another field number than in lists."""

    items: list[StorageItem]


class DeleteItems(WireMessage, frozen=True):
    """Items to delete."""

    queue_name: str = ""
    partition: Int = 0
    ids: list[str] = field(default_factory=list)


OK: Final = 200
BAD: Final = 400
FAILED: Final = 453
AGAIN: Final = 454
CONTENT: Final = 455  # 452 is not here: Go clients raise it without sending anything
INTERNAL: Final = 500
UNKNOWN: Final = 501

TEXTS: Final = MappingProxyType(
    {
        OK: "OK",
        BAD: "Bad Request",
        401: "Unauthorized",
        403: "Forbidden",
        404: "Not Found",
        409: "Conflict",
        429: "Too Many Requests",
        FAILED: "Request Failed",
        AGAIN: "Retry Request",
        CONTENT: "Client Content Error",
        INTERNAL: "Internal Service Error",
        UNKNOWN: "Not Implemented",
    }
)

# The first match wins. With a text here, the text of the error is only logged: errors of
# an engine may contain addresses.
_TABLE: Final[tuple[tuple[type[DeadLetterError], int, str | None], ...]] = (
    (TryAgain, AGAIN, None),
    (NotFound, 404, None),
    (Conflict, 409, None),
    (Unavailable, AGAIN, "storage is unavailable; try again later"),
    (Refused, FAILED, "storage rejected the request; sending it again does not help"),
    (ConfigError, BAD, None),
    (DeadLetterError, BAD, None),
)
DONE: Final = Reply(OK, TEXTS[OK])

ErrorCodes: TypeAlias = Mapping[type[DeadLetterError], int]

NO_OTHER_CODES: Final[ErrorCodes] = MappingProxyType({})
QUERATOR_CODES: Final[ErrorCodes] = MappingProxyType(
    {NotFound: BAD, Conflict: BAD, ShuttingDown: FAILED}
)
"""Codes of the errors that Querator answers with another code than ours."""


class UnreadableBody(Exception):
    """The body, or its Content-Type, is not readable."""


class UnsupportedFormat(Exception):
    """The client accepts no format that the server can write."""


def reply_to_error(
    error: Exception, other_codes: ErrorCodes = NO_OTHER_CODES
) -> tuple[Reply, Mapping[str, str]]:
    """Return the reply to an error and its headers; `other_codes` override ours."""
    if isinstance(error, (UnreadableBody, UnsupportedFormat)):
        return error_reply(CONTENT, str(error)), {}
    if isinstance(error, HTTPException) and error.status_code in TEXTS:
        return error_reply(error.status_code, error.detail), error.headers or {}
    if isinstance(error, DeadLetterError):
        code, instead = next(row[1:] for row in _TABLE if isinstance(error, row[0]))
        if instead is not None:
            problem_of(error)  # logs it
        others = (other for kind, other in other_codes.items() if isinstance(error, kind))
        code = next(others, code)
        return error_reply(code, instead or str(error)), {}
    problem, _ = problem_of(error)
    return error_reply(INTERNAL, problem.detail, {"error.id": problem.id or ""}), {}


def error_reply(code: int, message: str, details: dict[str, str] | None = None) -> Reply:
    """Return a reply with an error code."""
    return Reply(code, TEXTS[code], message, details or {})
