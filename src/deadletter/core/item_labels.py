"""The texts of an item, mostly short or empty, as one column."""

from typing import Final, TypeAlias

import msgspec

from .escaping import shown, stored

Labels: TypeAlias = tuple[str, str, str]
"""reference, encoding, kind"""

NO_LABELS: Final[Labels] = ("", "", "")

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Labels).decode


def pack_labels(reference: str, encoding: str, kind: str) -> bytes | None:
    """As bytes; None when all are empty."""
    if not (reference or encoding or kind):
        return None
    return _encode((stored(reference), stored(encoding), stored(kind)))


def unpack_labels(packed: bytes | None) -> Labels:
    """The texts again."""
    if not packed:
        return NO_LABELS
    reference, encoding, kind = _decode(packed)
    return shown(reference), shown(encoding), shown(kind)
