"""Ids: time-ordered ones for messages, computed ones for letters."""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

ID_LENGTH: Final = 24
"""Characters in the id of a letter."""

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS: Final = [first + second for first in _BASE32 for second in _BASE32]
_SHIFTS: Final = tuple(range(110, -1, -10))  # 15 bytes, two digits at a time


TAIL_BITS: Final = 74  # of a version 7 UUID, beside its time
LATE_BITS: Final = 62  # ...of which so many stand at its end


def uuid7(millis: int, tail: int) -> str:
    """A version 7 UUID of a millisecond and 74 further bits."""
    return uuid7_start(millis, tail) + uuid7_end(tail)


def uuid7_start(millis: int, tail: int) -> str:
    """The first half, which ids made within a millisecond have in common."""
    high = (millis & 0xFFFFFFFFFFFF) << 16 | 0x7000 | (tail >> LATE_BITS) & 0xFFF
    text = high.to_bytes(8).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:]}-"


def uuid7_end(tail: int) -> str:
    """The second half."""
    # Through bytes: formatting numbers of this size takes three times as long.
    text = (0x8000000000000000 | tail & 0x3FFFFFFFFFFFFFFF).to_bytes(8).hex()
    return f"{text[:4]}-{text[4:]}"


@lru_cache(
    maxsize=4096
)  # a letter's is asked for when it is written and when it is kept
def letter_id(source: str, partition: str, message_id: str, twist: bytes = b"") -> str:
    """
    The id of the letter a message becomes, whoever writes it, whenever.

    Two messages of one identity share it; `twist` (a digest of the body) sets
    one apart whose id was reused for another body.
    """
    told = bytearray()
    for part in (source, partition, message_id):
        encoded = part.encode("utf-8", "surrogatepass")
        told += len(encoded).to_bytes(4, "big")
        told += encoded
    told += twist
    number = int.from_bytes(blake2b(told, digest_size=15).digest(), "big")
    # By hand, because `base64` takes its time.
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def body_digest(body: bytes) -> bytes:
    """What tells two bodies apart."""
    return blake2b(body, digest_size=16).digest()
