"""
Bodies as the handler wants them.

What a handler's first parameter is annotated with decides what it is given: a
Struct, dataclass, TypedDict, dict or pydantic model is decoded from JSON and
validated, `bytes` and `str` are handed over as they are, `Message` and
`Delivery` bring everything. A body that does not fit is Malformed: a dead
letter, without a retry.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_type_hints

import msgspec

from deadletter.core.errors import ConfigError, Malformed
from deadletter.core.message import Delivery, Message

from .context import Context

Decode: TypeAlias = Callable[[Delivery], object]
JSON = "application/json"

_BYTES: Final = (bytes, bytearray, memoryview)
_encoder: Final = msgspec.json.Encoder()


def typed(function: Callable[..., Any]) -> Callable[[Delivery], Any]:
    """The function, called with what its parameters ask for."""
    parameters = _parameters(function)
    decode = _decoder(parameters[0][1])
    if len(parameters) == 1:
        if decode is _delivery:
            return function
        return lambda delivery: function(decode(delivery))
    name = parameters[1][0]
    return lambda delivery: function(decode(delivery), **{name: Context.current()})


def can_read(function: Callable[..., Any], delivery: Delivery) -> bool:
    """Whether the body fits what the function asks for; it is not called."""
    try:
        _decoder(_parameters(function)[0][1])(delivery)
    except Exception:  # noqa: BLE001 -- a validator of theirs may raise anything
        return False
    return True


def encode(body: object) -> tuple[bytes, str | None]:
    """The bytes of a body and their content type."""
    if type(body) is not dict:  # as most are
        if isinstance(body, _BYTES):
            return bytes(body), None
        if isinstance(body, str):
            return _encoded(body), "text/plain"
        dump = getattr(body, "model_dump_json", None)
        if dump is not None:
            return dump().encode(), JSON
    try:
        return _encoder.encode(body), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a body of type {type(body).__name__} cannot be sent: {error}. "
            "Send bytes, text, a Struct, dataclass, TypedDict, dict or pydantic model."
        ) from error


def encode_result(value: object) -> bytes | None:
    """What a handler returned as JSON; None if there is no JSON for it."""
    try:
        body, content_type = encode(value)
    except ConfigError:
        return None  # the handler is done, whatever it returned
    if content_type == JSON:
        return body
    try:
        return _encoder.encode(body.decode() if content_type else body)
    except UnicodeDecodeError:
        return None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the body is text that is not Unicode: character {error.start + 1} is"
            " half a surrogate pair. Send such content as bytes."
        ) from error


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    name = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"the annotations of handler {name} cannot be read: {error}. Types that "
            "a handler asks for must be defined at module level, above it."
        ) from error
    found = [
        (p.name, hints.get(p.name, Any))
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if not found or len(found) > 2 or (len(found) == 2 and found[1][1] is not Context):
        raise ConfigError(
            f"handler {name} must take the body and, if it wants, a Context: "
            "async def handle(order: Order, context: Context)"
        )
    return found


def _decoder(wanted: Any) -> Decode:
    if wanted is Delivery:
        return _delivery
    if wanted is Message:
        return lambda delivery: delivery.message
    if wanted is bytes:
        return lambda delivery: delivery.message.body
    if wanted is str:
        return _text
    if wanted is Any:
        return _anything
    validate = getattr(wanted, "model_validate_json", None)
    if validate is not None:
        return lambda delivery: _fit(validate, delivery.message.body)
    try:
        read = msgspec.json.Decoder(wanted).decode
        info = msgspec.inspect.type_info(wanted)
    except TypeError as error:
        raise ConfigError(f"cannot decode a body into {wanted!r}: {error}") from error
    if isinstance(info, msgspec.inspect.CustomType):
        raise ConfigError(
            f"cannot decode a body into {wanted!r}: use a Struct, dataclass, "
            "TypedDict, dict or pydantic model, or take the bytes"
        )
    return lambda delivery: _fit(read, delivery.message.body)


def _delivery(delivery: Delivery) -> Delivery:
    return delivery


def _text(delivery: Delivery) -> str:
    return str(_fit(bytes.decode, delivery.message.body))


def _anything(delivery: Delivery) -> object:
    message = delivery.message
    if message.content_type == JSON:
        return _fit(msgspec.json.decode, message.body)
    return message.body


def _fit(read: Callable[[bytes], Any], body: bytes) -> Any:
    # ValueError covers msgspec, pydantic and Unicode; deep nesting ends in a
    # RecursionError, and none of them may look like trouble worth a retry.
    try:
        return read(body)
    except (ValueError, RecursionError, OverflowError) as error:
        raise Malformed(f"the body does not fit the handler: {error}") from error
