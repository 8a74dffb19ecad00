"""
One-time codes: a link that `dlq serve` prints, and that signs its reader in.

A code is in the part of the URL behind `#`, which browsers do not send: it is in no request
line, log or referrer. It stands for one token, works once, and only for ten minutes.
"""

import re
import secrets
from hashlib import blake2b
from typing import Final

from deadletter.ports.features import Clock

LASTS: Final = 600.0  # seconds
_MOST: Final = 16  # codes at any time
_BYTES: Final = 16
is_code: Final = re.compile(f"[0-9a-f]{{{2 * _BYTES}}}", re.ASCII).fullmatch
"""Return a match if a text has the form of a code."""


class SignInCodes:
    """The codes of one server that were not used yet, by their hashes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: dict[str, tuple[str, float]] = {}  # the hash of a token, the end

    def issue(self, token_hash: str) -> str:
        """Return a new code for the token with this hash."""
        while len(self._codes) >= _MOST:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_hex(_BYTES)
        self._codes[_hash(code)] = (token_hash, self._clock.monotonic() + LASTS)
        return code

    def redeem(self, code: str) -> str | None:
        """Return the hash of the code's token, once; None if the code is not valid."""
        token, ends = self._codes.pop(_hash(code), (None, 0.0))
        return token if self._clock.monotonic() < ends else None


def _hash(code: str) -> str:
    return blake2b(code.encode(), digest_size=32, person=b"dlq-code").hexdigest()
