"""Bodies: JSON on the wire, the mailbox's own type in hand."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from .errors import SerializationError

Decode: TypeAlias = Callable[[bytes], Any]


def decoder(body_type: Any) -> Decode:
    """Reads bodies of that type; SerializationError when they are not."""
    read = msgspec.json.Decoder(body_type).decode

    def decode(body: bytes) -> Any:
        # Deep nesting ends in a RecursionError.
        try:
            return read(body)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"the body does not fit the mailbox: {error}") from error

    return decode


def encode(body: object) -> bytes:
    """The body as it travels; a SerializationError when it cannot."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(
            f"a body of type {type(body).__name__} cannot be sent: {error}"
        ) from error


def fits(decode: Decode, body: bytes) -> Any:
    """The body as it should be, or as it came."""
    try:
        return decode(body)
    except SerializationError:
        return body
