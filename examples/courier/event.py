"""Events: as couriers send them, and as they are queued."""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from deadletter import Message

Name = Annotated[str, Meta(min_length=1, max_length=200)]
_UTC = Annotated[datetime, Meta(tz=True)]


class SignatureMeta(Struct, frozen=True, kw_only=True):
    """The signature of a request."""

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
    """An event as a courier posts it."""

    source: Name
    occurred_at: _UTC | None = None
    idempotency_key: Name | None = None  # source:eventId unless it says otherwise

    @property
    def key(self) -> str:
        return self.idempotency_key or f"{self.source}:{self.event_id}"


class Event(_WithPayload, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """
    An event in the main queue.

    Five fields are required, whoever queued it. `attempt` is the number it was queued with; the
    number of the current attempt is that of its delivery.
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
    """Return the idempotency key of a queued event, whoever queued it."""
    try:
        return _keyed.decode(message.body).idempotency_key
    except msgspec.DecodeError:  # the handler's decoder rejects it
        return None


def queued(
    event: Reported, *, trace_id: str, signed: SignatureMeta, received_at: datetime
) -> Event:
    """Return the event as it is queued, its times in UTC."""
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
