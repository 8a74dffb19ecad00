"""
Tokens and session ids: made of chance, shown once, kept as a hash.

    dlq_<id>_<secret>     the id is no secret: lists and the audit name it
"""

import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from deadletter.core.access import Pass, Token

# 256 bits of chance need no slow hash: there is nothing to try out.
_SECRET: Final = 32
_PRINCIPAL: Final = 16
_SHAPE: Final = r"dlq_[a-z0-9]{1,16}_[0-9a-f]{64}"
_is_token: Final = re.compile(_SHAPE, re.ASCII).fullmatch
_has_token: Final = re.compile(_SHAPE, re.ASCII).search
_is_session: Final = re.compile("[0-9a-f]{64}", re.ASCII).fullmatch


def mint(
    to: Pass,
    *,
    at: datetime,
    by: str,
    expires_at: datetime | None = None,
    id: str | None = None,
) -> tuple[Token, str]:
    """A new token as it is kept, and as it is shown this once."""
    name = id or secrets.token_hex(5)
    shown = f"dlq_{name}_{secrets.token_hex(_SECRET)}"
    token = Token(
        id=name,
        hash=token_hash(shown),
        to=replace(to, principal=secrets.token_hex(_PRINCIPAL)),
        created_at=at,
        created_by=by,
        expires_at=expires_at,
    )
    return token, shown


def new_secret() -> str:
    """What a session, or its proof against forged requests, is known by."""
    return secrets.token_hex(_SECRET)


def token_hash(shown: str) -> str:
    """
    What a token is found by.

    Whatever is shown costs one hash of a short text: what cannot be a token is
    answered with the hash of nothing, which no token has.
    """
    return _hash(shown if _is_token(shown) else "", b"dlq-token")


def session_hash(shown: str) -> str:
    """What a session is found by; the same holds as for tokens."""
    return _hash(shown if _is_session(shown) else "", b"dlq-session")


def shows_token(texts: Sequence[str]) -> bool:
    """Whether a token is written in any of these."""
    return any(_has_token(text) for text in texts)


def _hash(text: str, person: bytes) -> str:
    return blake2b(text.encode(), digest_size=32, person=person).hexdigest()
