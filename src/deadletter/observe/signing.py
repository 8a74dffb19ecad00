"""
Webhooks as Standard Webhooks signs them: HMAC-SHA256 over id, time and body.

A receiver computes the same, compares in constant time, and refuses what is older
than a few minutes.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from deadletter.core.errors import ConfigError

PREFIX: Final = "whsec_"
_SHORTEST: Final = 16  # bytes: less could be guessed


def secret_of(text: str) -> bytes:
    """The bytes to sign with: base64 behind `whsec_`, any other text as it is."""
    if text.startswith(PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise ConfigError(
                "the secret of a webhook is not base64 behind whsec_"
            ) from None
    else:
        secret = text.encode()
    if len(secret) < _SHORTEST:
        raise ConfigError(f"the secret of a webhook has at least {_SHORTEST} bytes")
    return secret


def signed(secret: bytes, id: str, seconds: int, body: bytes) -> str:
    """What goes into the header `webhook-signature`."""
    content = f"{id}.{seconds}.".encode() + body
    digest = hmac.new(secret, content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
