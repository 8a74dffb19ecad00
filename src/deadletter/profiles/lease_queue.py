"""The queue server's storage item."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from deadletter.core.failure import Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Message

from .projection import taken, understood

KIND: Final = "kind"
"""The header that keeps an item's kind."""


class StorageItem(Struct, frozen=True, kw_only=True):
    """An item in a dead queue; `payload` is base64 in JSON."""

    id: str
    source_id: str
    is_leased: bool = False
    lease_deadline: datetime | None = None
    expire_deadline: datetime | None = None
    created_at: datetime
    updated_at: datetime
    enqueue_at: datetime | None = None
    attempts: int = 0
    max_attempts: int = 0
    reference: str = ""
    encoding: str = ""
    kind: str = ""
    payload: bytes = b""


def export(letter: DeadLetter, *, max_attempts: int = 0) -> dict[str, Any]:
    """
    Return the item as it is moved to a dead queue.

    It has the letter's id; its lease and attempts start afresh.
    """
    head, message = letter.head, letter.message
    item = StorageItem(
        id=head.id,
        source_id=head.message_id,
        expire_deadline=message.expires_at,
        created_at=head.dead_at,
        updated_at=head.dead_at,
        max_attempts=max_attempts,
        reference=message.idempotency_key or "",
        encoding=message.content_type or "",
        kind=message.header(KIND) or "",
        payload=message.body,
    )
    fields: dict[str, Any] = msgspec.to_builtins(item)
    return fields


def import_(item: Mapping[str, Any], *, queue: str) -> DeadLetter:
    """Return the letter of an item found in the dead queue of `queue`."""
    told = understood("a storage item", msgspec.convert, item, StorageItem)
    message = Message(
        id=told.source_id or told.id,
        body=told.payload,
        sent_at=told.created_at,
        headers=((KIND, told.kind.encode()),) if told.kind else (),
        content_type=told.encoding or None,
        expires_at=told.expire_deadline,
        idempotency_key=told.reference or None,
    )
    # Of a dead item's end only this much is known: it came too late, or too often.
    deadline = told.expire_deadline
    expired = deadline is not None and deadline <= told.created_at
    reason = Reason.EXPIRED if expired else Reason.ATTEMPTS_EXHAUSTED
    text = "its time was over" if expired else "its attempts were used up"
    trouble = Trouble.EXPIRED if expired else Trouble.UNKNOWN
    return taken(
        message,
        Failure(trouble=trouble, code=reason.upper().replace("-", "_"), error_type="", text=text),
        source=queue,
        reason=reason,
        attempts=told.attempts,
        dead_at=told.created_at,
    )
