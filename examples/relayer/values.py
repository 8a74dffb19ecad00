"""What is asked for, what travels on the queue, and what is answered."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from deadletter import ErrorCategory

Address = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]
Hex = Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})*$", max_length=100_000)]
Signature = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{130}$")]
TransactionId = Annotated[str, Meta(min_length=1, max_length=100)]
Amount = Annotated[str, Meta(pattern="^[0-9]{1,78}$")]  # more than a float can carry


class Status(StrEnum):
    """Where a transaction is."""

    PENDING = "pending"  # written down, not on the queue yet
    QUEUED = "queued"
    PROCESSING = "processing"
    SUBMITTED = "submitted"  # the relayer below has it
    MINED = "mined"
    CONFIRMED = "confirmed"
    FAILED = "failed"


UNFINISHED: Final = frozenset({Status.PENDING, Status.QUEUED, Status.PROCESSING})
"""What a consumer may still work on. All else is somebody else's, or over."""


class DirectTxRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """A call that the relayer makes in its own name."""

    to: Address
    data: Hex = "0x"
    value: Amount = "0"
    gas_limit: Amount | None = None
    retry_on_failure: bool | None = None  # missing, or null, means false


class GaslessTxRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """A call that somebody has signed and the relayer pays for."""

    sender: Address
    to: Address
    data: Hex = "0x"
    value: Amount = "0"
    nonce: Amount
    deadline: Amount
    signature: Signature
    retry_on_failure: bool | None = None


class RelayMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """What travels on the queue."""

    transaction_id: TransactionId
    type: Annotated[str, Meta(pattern="^(direct|gasless)$")]
    request: dict[str, Any]
    retry_on_failure: bool | None = None


class Transaction(Struct, frozen=True, rename="camel", kw_only=True):
    """A transaction as it stands; this is also what callers are told."""

    transaction_id: str
    type: str
    status: Status
    retry_on_failure: bool = False
    relayer_id: str | None = None
    hash: str | None = None
    error_category: ErrorCategory | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at: datetime
    updated_at: datetime


class Accepted(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer to whoever asked for a transaction."""

    transaction_id: str
    status: Status


class News(Struct, frozen=True, rename="camel", kw_only=True):
    """What the relayer below tells of a transaction that it has."""

    transaction_id: str
    status: Status
    hash: str | None = None
    error: str | None = None


def read_message(body: bytes) -> RelayMessage | None:
    """Return the message of a body, or None if it is malformed."""
    try:
        return msgspec.json.decode(body, type=RelayMessage)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def read_id(body: bytes) -> str | None:
    """Return the transaction that a malformed body names, if it names one."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(fields["transactionId"], type=TransactionId)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        return None
