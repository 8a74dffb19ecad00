"""
Masks of CSRF tokens, for pages.

A page is compressed, and its length tells something about its content. So each page shows
the token of its session in another form: a random pad, and the token combined with it.
"""

import re
import secrets
from typing import Final

_BYTES: Final = 32
_is_masked: Final = re.compile(f"[0-9a-f]{{{4 * _BYTES}}}", re.ASCII).fullmatch


def mask(token: str) -> str:
    """Return another form of a CSRF token, new each time."""
    pad = secrets.token_bytes(_BYTES)
    return pad.hex() + _combined(pad, bytes.fromhex(token)).hex()


def unmask(shown: str) -> str:
    """Return the token of a masked form; any other text as it is."""
    if not _is_masked(shown):
        return shown
    both = bytes.fromhex(shown)
    return _combined(both[:_BYTES], both[_BYTES:]).hex()


def _combined(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
