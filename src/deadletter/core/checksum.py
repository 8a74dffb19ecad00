"""
Checksums that travel with messages where the protocol has none.

They are made when a message is sent and compared before anybody is handed it. What
others have sent has none, and is taken as it is.
"""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

CORRUPT: Final = (
    "what arrived does not match the checksum it was sent with: it was changed on its"
    " way or where it is stored"
)
"""Why a delivery is not handed to anybody."""


def checksum(*parts: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> int:
    """Return the checksum of what is sent; headers may arrive in another order."""
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    for name, value in headers:
        crc ^= crc32(value, crc32(name.encode("utf-8", "surrogatepass")))
    return crc
