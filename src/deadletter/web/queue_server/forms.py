"""JSON or protobuf: what a body is in, and what a reply is asked for in."""

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, lru_cache
from typing import Final, TypeVar

import msgspec

from deadletter.core.documents import encode_document

from .packing import pack
from .protobuf import unpack
from .said import Said
from .status import Unanswerable, Unreadable

S = TypeVar("S", bound=Said)


class Form(Enum):
    """How values are written down."""

    JSON = "application/json"
    PROTOBUF = "application/protobuf"


_NAMES: Final = {form.value: form for form in Form} | {
    "application/x-protobuf": Form.PROTOBUF
}
_ANY: Final = frozenset({"", "*/*", "application/*"})


@lru_cache(64)  # most clients say the same
def form_of_body(content_type: str) -> Form:
    """What a body says it is; JSON if it does not."""
    name = _plain(content_type)
    if name in _ANY:
        return Form.JSON
    if name not in _NAMES:
        raise Unreadable(
            f"Content-Type {name[:100]!a} cannot be read; send {_choice()}"
        )
    return _NAMES[name]


@lru_cache(64)
def form_of_reply(accept: str, body: Form) -> Form:
    """What a reply is asked for in; if all are welcome, what the body came in."""
    asked = [_plain(one) for one in accept.split(",")]
    for name in asked:
        if name in _NAMES:
            return _NAMES[name]
    if _ANY.isdisjoint(asked):
        raise Unanswerable(
            f"Accept {accept[:100]!a} cannot be written; ask for {_choice()}"
        )
    return body


def read(body: bytes, form: Form, kind: type[S]) -> S:
    """The value in a body."""
    try:
        if form is Form.PROTOBUF:
            return unpack(body, kind)
        found: S = _decoder(kind)(body)
    except (ValueError, OverflowError) as error:  # msgspec's own errors are such, too
        raise Unreadable(f"the body cannot be read; {error}") from error
    return found


def write(value: Said, form: Form) -> bytes:
    """A value as a body."""
    return pack(value) if form is Form.PROTOBUF else encode_document(value)


@cache
def _decoder(kind: type[S]) -> Callable[[bytes], S]:
    return msgspec.json.Decoder(kind).decode


def _plain(name: str) -> str:
    return name.partition(";")[0].strip().lower()


def _choice(forms: Iterable[Form] = Form) -> str:
    return " or ".join(form.value for form in forms)
