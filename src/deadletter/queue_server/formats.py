"""JSON and protobuf: the format of a body, and the format of its reply."""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, lru_cache
from typing import Final, TypeVar

import msgspec

from deadletter.core.text import encode_document

from .protobuf import pack, unpack
from .wire import UnreadableBody, UnsupportedFormat, WireMessage

S = TypeVar("S", bound=WireMessage)


class WireFormat(Enum):
    """A format of messages."""

    JSON = "application/json"
    PROTOBUF = "application/protobuf"


_NAMES: Final = {form.value: form for form in WireFormat} | {
    "application/x-protobuf": WireFormat.PROTOBUF
}
_ANY: Final = frozenset({"", "*/*", "application/*"})


@lru_cache(64)  # most clients send the same
def format_of_body(content_type: str) -> WireFormat:
    """Return the format of a body by its Content-Type; JSON without one."""
    name = _plain(content_type)
    if name in _ANY:
        return WireFormat.JSON
    if name not in _NAMES:
        raise UnreadableBody(f"Content-Type {name[:100]!a} is not supported; send {_choice()}")
    return _NAMES[name]


@lru_cache(64)
def format_of_reply(accept: str, body: WireFormat) -> WireFormat:
    """Return the format that a client accepts; that of the body if it accepts any."""
    accepted = [_plain(one) for one in accept.split(",")]
    for name in accepted:
        if name in _NAMES:
            return _NAMES[name]
    if _ANY.isdisjoint(accepted):
        raise UnsupportedFormat(f"Accept {accept[:100]!a} is not supported; accept {_choice()}")
    return body


def read(body: bytes, form: WireFormat, kind: type[S]) -> S:
    """Return the message in a body."""
    try:
        if form is WireFormat.PROTOBUF:
            return unpack(body, kind)
        found: S = _decoder(kind)(body)
    except (ValueError, OverflowError) as error:  # errors of msgspec are ValueErrors as well
        raise UnreadableBody(f"the body is not readable; {error}") from error
    return found


def write(value: WireMessage, form: WireFormat) -> bytes:
    """Return a message as a body."""
    return pack(value) if form is WireFormat.PROTOBUF else encode_document(value)


@cache
def _decoder(kind: type[S]) -> Callable[[bytes], S]:
    return msgspec.json.Decoder(kind).decode


def _plain(name: str) -> str:
    return name.partition(";")[0].strip().lower()


def _choice(forms: Iterable[WireFormat] = WireFormat) -> str:
    return " or ".join(form.value for form in forms)
