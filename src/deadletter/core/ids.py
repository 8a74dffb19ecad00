"""Time-ordered ids for messages, computed ids for letters, and checksums."""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from zlib import crc32

ID_LENGTH: Final = 24
"""Characters in the id of a letter."""

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = [first + second for first in _BASE32 for second in _BASE32]
_BODY: Final = blake2b(digest_size=16)
_HALF: Final = 60  # bits: half an id, as a small number


TAIL_BITS: Final = 74  # of a version 7 UUID, beside its time
LATE_BITS: Final = 62  # of these, the bits in its second half


def uuid7(millis: int, tail: int) -> str:
    """Return a version 7 UUID of a millisecond and 74 further bits."""
    return uuid7_start(millis, tail) + uuid7_end(tail)


def uuid7_start(millis: int, tail: int) -> str:
    """Return the first half, which ids of one millisecond may share."""
    high = (millis & 0xFFFFFFFFFFFF) << 16 | 0x7000 | (tail >> LATE_BITS) & 0xFFF
    text = high.to_bytes(8).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:]}-"


def uuid7_end(tail: int) -> str:
    """Return the second half."""
    # Through bytes: formatting numbers of this size takes three times as long.
    text = (0x8000000000000000 | tail & 0x3FFFFFFFFFFFFFFF).to_bytes(8).hex()
    return f"{text[:4]}-{text[4:]}"


@lru_cache(maxsize=4096)  # computed at burial and at filing
def letter_id(source: str, partition: str, message_id: str, twist: bytes = b"") -> str:
    """
    Return the id of the letter that a message becomes.

    It depends only on the arguments, so that every writer computes the same one. `twist` (a
    digest of the body) sets a message apart whose id was reused with another body.
    """
    hash_ = _begun(source, partition).copy()
    id_ = message_id.encode("utf-8", "surrogatepass")
    hash_.update(len(id_).to_bytes(4) + id_ + twist)
    number = int.from_bytes(hash_.digest())
    # Two digits at once: faster than `base64`.
    a, b, pairs = number >> _HALF, number & (1 << _HALF) - 1, _PAIRS
    return (
        f"{pairs[a >> 50]}{pairs[a >> 40 & 1023]}{pairs[a >> 30 & 1023]}"
        f"{pairs[a >> 20 & 1023]}{pairs[a >> 10 & 1023]}{pairs[a & 1023]}"
        f"{pairs[b >> 50]}{pairs[b >> 40 & 1023]}{pairs[b >> 30 & 1023]}"
        f"{pairs[b >> 20 & 1023]}{pairs[b >> 10 & 1023]}{pairs[b & 1023]}"
    )


@lru_cache(maxsize=1024)  # copying a hash is faster than hashing the names again
def _begun(source: str, partition: str) -> blake2b:
    first = source.encode("utf-8", "surrogatepass")
    second = partition.encode("utf-8", "surrogatepass")
    names = (len(first).to_bytes(4), first, len(second).to_bytes(4), second)
    return blake2b(b"".join(names), digest_size=15)


def body_digest(body: bytes) -> bytes:
    """Return a digest that tells bodies apart."""
    hash_ = _BODY.copy()  # faster than a new one
    hash_.update(body)
    return hash_.digest()


# Checksums of messages, for protocols without one.
#
# They are made when a message is sent and checked before a handler gets it. Messages
# of other senders have none and are not checked.

CORRUPT: Final = (
    "the message does not match the checksum it was sent with: it was changed on its"
    " way or where it is stored"
)
"""Why a corrupt delivery is not given to a handler."""


def checksum(*parts: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> int:
    """Return the checksum of a message; the order of headers does not matter."""
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    for name, value in headers:
        crc ^= crc32(value, crc32(name.encode("utf-8", "surrogatepass")))
    return crc
