"""
Signatures: HMAC-SHA256 over the timestamp and the raw bytes of the body.

    signature = HMAC(secret, "<unix seconds>." + body), hex or base64

The timestamp is signed as well; otherwise anybody could send an old request with a new time.
A request that is repeated within the window passes, and ends as a duplicate in the ledger.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from .event import SignatureMeta

ALGORITHM: Final = "hmac-sha256"
SIGNATURE: Final = "x-signature"
TIMESTAMP: Final = "x-signature-timestamp"
SCHEME: Final = "x-signature-algorithm"
_DIGITS: Final = 12  # of a timestamp, for the next few thousand years


class InvalidSignature(Exception):
    """An invalid signature. It has no details, which would help attackers."""


def sign(secret: str, timestamp: int, body: bytes) -> bytes:
    """Return the signature of a body at a time."""
    told = b"%d." % timestamp + body
    return hmac.digest(secret.encode(), told, "sha256")


def signed_headers(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that a courier sends with a body."""
    return {
        SIGNATURE: sign(secret, timestamp, body).hex(),
        TIMESTAMP: str(timestamp),
        SCHEME: ALGORITHM,
    }


def verified(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float, window: float
) -> SignatureMeta:
    """Return the signature of a request. Raises InvalidSignature if it is wrong or too old."""
    given = headers.get(SIGNATURE, "")
    stamp = headers.get(TIMESTAMP, "")
    algorithm = headers.get(SCHEME, ALGORITHM)
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= _DIGITS):
        raise InvalidSignature
    timestamp = int(stamp)
    right = sign(secret, timestamp, body)
    # Both forms are always compared, so that the time of the comparison reveals nothing.
    fits = _is_same(given.lower(), right.hex())
    fits |= _is_same(given, b64encode(right).decode())
    fits &= algorithm == ALGORITHM
    fits &= abs(now - timestamp) <= window
    if not fits:
        raise InvalidSignature
    return SignatureMeta(algorithm=algorithm, timestamp=timestamp, signature=given)


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())
