"""Encoding and decoding of message bodies, which travel as JSON."""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from .errors import SerializationError

Decode: TypeAlias = Callable[[bytes], Any]


def decoder(body_type: Any) -> Decode:
    """Return a function that decodes bodies of this type, or raises SerializationError."""
    read = msgspec.json.Decoder(body_type).decode

    def decode(body: bytes) -> Any:
        # Deep nesting ends in a RecursionError.
        try:
            return read(body)
        except (ValueError, RecursionError) as error:
            raise SerializationError(
                f"the body does not fit the type of its mailbox: {error}"
            ) from error

    return decode


def encode(body: object) -> bytes:
    """Return a body as JSON. Raises SerializationError for a value that JSON cannot hold."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(
            f"a body of type {type(body).__name__} cannot be encoded as JSON: {error}; "
            "send a dataclass, a msgspec.Struct or plain values"
        ) from error


def decode_or_bytes(decode: Decode, body: bytes) -> Any:
    """Return the decoded body, or its bytes if it does not fit."""
    try:
        return decode(body)
    except SerializationError:
        return body
