"""Events: as a courier sends them, and as they wait in the main queue."""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from deadletter import Message

Name = Annotated[str, Meta(min_length=1, max_length=200)]
_UTC = Annotated[datetime, Meta(tz=True)]


class SignatureMeta(Struct, frozen=True, kw_only=True):
    """How the courier signed the request."""

    algorithm: str
    timestamp: int  # unix seconds
    signature: str  # as it came: hex or base64


class _WithPayload(Struct, frozen=True, kw_only=True, rename="camel"):
    event_id: Name
    event_type: Name
    payload: Raw  # an object, kept byte for byte

    def __post_init__(self) -> None:
        if not bytes(self.payload).startswith(b"{"):
            raise ValueError("payload must be an object")


class Reported(_WithPayload, frozen=True, kw_only=True, rename="camel"):
    """What a courier posts."""

    source: Name
    occurred_at: _UTC | None = None
    idempotency_key: Name | None = None  # source:eventId unless it says otherwise

    @property
    def key(self) -> str:
        return self.idempotency_key or f"{self.source}:{self.event_id}"


class Event(_WithPayload, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """
    What waits in the main queue.

    Five fields must be there, whoever queued it. `attempt` is what it was queued
    with; how often it has been tried is told by its delivery.
    """

    idempotency_key: Name
    trace_id: Name
    source: str | None = None
    occurred_at: _UTC | None = None
    signature_meta: SignatureMeta | None = None
    received_at: _UTC | None = None
    attempt: Annotated[int, Meta(ge=1)] | None = None


class _Keyed(Struct, rename="camel"):
    idempotency_key: Name


reported: Final = msgspec.json.Decoder(Reported)
encoded: Final = msgspec.json.Encoder().encode
_keyed: Final = msgspec.json.Decoder(_Keyed)


def key_of(message: Message) -> str | None:
    """The idempotency key of a queued event, whoever queued it."""
    try:
        return _keyed.decode(message.body).idempotency_key
    except msgspec.DecodeError:  # what is wrong with it is for the handler to say
        return None


def queued(
    event: Reported, *, trace_id: str, signed: SignatureMeta, received_at: datetime
) -> Event:
    """The event as it is queued, its times in UTC."""
    occurred = event.occurred_at
    return Event(
        event_id=event.event_id,
        event_type=event.event_type,
        occurred_at=occurred and occurred.astimezone(UTC),
        source=event.source,
        idempotency_key=event.key,
        trace_id=trace_id,
        signature_meta=signed,
        payload=event.payload,
        received_at=received_at,
        attempt=1,
    )
