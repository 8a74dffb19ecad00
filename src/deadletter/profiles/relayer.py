"""
Transactions relayed to an EVM chain.

Permanent errors of the chain and the relayer come first, by text and then by status; then
temporary ones: statuses, timeouts, refused connections.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.failure import ErrorCategory, Failure, Reason, Trouble
from deadletter.core.failure.classify import Rule
from deadletter.core.failure.rules import NETWORK
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message

from .projection import taken, understood


def _says(code: str, *texts: str) -> Rule:
    return Rule(
        id=f"evm-{code.lower().replace('_', '-')}",
        trouble=Trouble.PERMANENT,
        code=code,
        texts=texts,
    )


EVM: Final = (
    _says("INSUFFICIENT_FUNDS", "insufficient funds", "insufficient balance"),
    _says("GAS_LIMIT_EXCEEDED", "gas required exceeds allowance"),
    _says("GAS_TOO_LOW", "intrinsic gas too low"),
    _says("OUT_OF_GAS", "out of gas"),
    _says("NONCE_TOO_LOW", "nonce too low"),
    _says("NONCE_USED", "nonce already used"),
    _says("EXECUTION_REVERTED", "execution reverted"),
    _says("WOULD_REVERT", "transaction would revert"),
    Rule(
        id="evm-http-refused", trouble=Trouble.PERMANENT, statuses=frozenset({400, 401, 403, 422})
    ),
    Rule(
        id="evm-http-try-later",
        trouble=Trouble.TRANSIENT,
        statuses=frozenset({408, 429, 500, 502, 503, 504}),
    ),
    *NETWORK,
)


# The relayer's status update: what becomes of a transaction.

MAILBOX = "relay-transactions"

_TROUBLES = {
    ErrorCategory.RETRYABLE: Trouble.TRANSIENT,
    ErrorCategory.NON_RETRYABLE: Trouble.PERMANENT,
}


class StatusUpdate(Struct, frozen=True, kw_only=True, rename="camel"):
    """A transaction's new status and its reason, without a body."""

    transaction_id: str
    message_id: str
    status: str = "failed"
    error_category: ErrorCategory = ErrorCategory.RETRYABLE
    error_code: str = ""
    error_message: str = ""
    receive_count: int = 1
    retry_on_failure: bool | None = False  # missing, or null, means false
    failed_at: datetime


def export(letter: DeadLetter) -> dict[str, Any]:
    """Return the update of the transaction that the message was about."""
    head = letter.head
    update = StatusUpdate(
        transaction_id=head.business_key or head.message_id,
        message_id=head.message_id,
        error_category=head.category,
        error_code=head.code,
        error_message=head.error_text,
        receive_count=head.attempts,
        retry_on_failure=bool(letter.retry_wish),
        failed_at=head.dead_at,
    )
    fields: dict[str, Any] = msgspec.to_builtins(update)
    return fields


def import_(update: Mapping[str, Any], *, body: bytes = b"", mailbox: str = MAILBOX) -> DeadLetter:
    """Return the letter of an update; its body, if known, must be given."""
    told = understood("a status update", msgspec.convert, update, StatusUpdate)
    message = Message(
        id=told.message_id, body=body, sent_at=told.failed_at, idempotency_key=told.transaction_id
    )
    trouble = _TROUBLES[told.error_category]
    exhausted = trouble is Trouble.TRANSIENT
    return taken(
        message,
        Failure(trouble=trouble, code=told.error_code, error_type="", text=told.error_message),
        source=mailbox,
        reason=Reason.ATTEMPTS_EXHAUSTED if exhausted else Reason.FATAL_ERROR,
        attempts=told.receive_count,
        dead_at=told.failed_at,
        retry_wish=bool(told.retry_on_failure),
    )
