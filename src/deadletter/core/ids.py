"""Ids: time-ordered ones for messages, computed ones for letters."""

from base64 import b32encode
from hashlib import blake2b


def uuid7(millis: int, tail: int) -> str:
    """A version 7 UUID of a millisecond and 74 further bits."""
    high = (millis & 0xFFFFFFFFFFFF) << 16 | 0x7000 | (tail >> 62) & 0xFFF
    low = 0x8000000000000000 | tail & 0x3FFFFFFFFFFFFFFF
    text = f"{high << 64 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def letter_id(source: str, partition: str, message_id: str, twist: bytes = b"") -> str:
    """
    The id of the letter a message becomes, whoever writes it, whenever.

    Two messages of one identity share it; `twist` (a digest of the body) sets
    one apart whose id was reused for another body.
    """
    digest = blake2b(digest_size=15)
    for part in (source, partition, message_id):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(4, "big"))
        digest.update(encoded)
    digest.update(twist)
    return b32encode(digest.digest()).decode().lower()


def body_digest(body: bytes) -> bytes:
    """What tells two bodies apart."""
    return blake2b(body, digest_size=16).digest()
