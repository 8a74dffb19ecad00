"""
Signatures on our headers, which others could have written.

Anybody who can send to a broker can write any header. Headers that decide which letter a
message belongs to, or how many attempts it had, therefore count only with a signature: an
HMAC-SHA256 over the fields, the mailbox they were written for and a digest of the body. A
signature names its key, so that keys can be rotated: the first key of a list signs, all of them
verify.
"""

import hmac
import re
from binascii import b2a_base64
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from msgspec import structs

from .errors import ConfigError
from .ids import body_digest
from .message import Lineage, Message

SIGNATURE_LENGTH: Final = 52
"""Characters in a signature: the id of its key, a colon, and the HMAC in base64."""

SHORTEST_KEY: Final = 32
"""The least number of characters in a key."""

_ID_LENGTH: Final = 8
_KEY_ID: Final = re.compile("[0-9a-f]{8}")
_BLOCK: Final = 64  # block size of SHA-256, in bytes
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_LINEAGE: Final = "lineage"

Part: TypeAlias = str | bytes


class Keys:
    """The keys of one office: the first signs, all of them verify."""

    __slots__ = ("_by_id", "_first")

    def __init__(self, first: bytes, *older: bytes) -> None:
        self._first = _key_id(first)
        self._by_id = {_key_id(key): _Mac(key) for key in (first, *older)}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys; signatures name their key by its id."""
        return tuple(self._by_id)

    def unknown(self, signature: str) -> str:
        """Return the id of a signature's key if it is not among these."""
        id_ = signature[:_ID_LENGTH]
        is_one = len(signature) == SIGNATURE_LENGTH and _KEY_ID.fullmatch(id_)
        return id_ if is_one and id_ not in self._by_id else ""

    def sign(self, purpose: str, *parts: Part) -> str:
        """Sign parts for one purpose; the signature is invalid for any other purpose."""
        return _signature(self._first, self._by_id[self._first], purpose, parts)

    def verifies(self, signature: str, purpose: str, *parts: Part) -> bool:
        """Return whether one of the keys signed exactly these parts."""
        if len(signature) != SIGNATURE_LENGTH or not signature.isascii():
            return False
        key_id = signature[:_ID_LENGTH]
        key = self._by_id.get(key_id)
        if key is None:
            return False
        return hmac.compare_digest(signature, _signature(key_id, key, purpose, parts))

    def __repr__(self) -> str:
        """Show the ids of the keys, never the keys."""
        return f"Keys({', '.join(self._by_id)})"


def keys_of(texts: Sequence[str]) -> Keys | None:
    """Read the keys of a setting; None if it is not set."""
    for number, text in enumerate(texts, 1):
        if len(text) < SHORTEST_KEY:
            raise ConfigError(
                f"signing key {number} has {len(text)} characters, and needs at least"
                f" {SHORTEST_KEY}: make one with `openssl rand -hex 32`"
            )
    if not texts:
        return None
    return Keys(*(text.encode("utf-8", "surrogatepass") for text in texts))


def sign_lineage(message: Message, mailbox: str, keys: Keys) -> Message:
    """Sign the lineage of a replayed copy, for the mailbox it goes to."""
    lineage = message.lineage
    if lineage is None:
        return message
    signature = keys.sign(_LINEAGE, *_lineage_parts(message, lineage, mailbox))
    signed = structs.replace(lineage, mailbox=mailbox, signature=signature)
    return structs.replace(message, lineage=signed)


def is_lineage_signed(message: Message, mailbox: str, keys: Keys) -> bool:
    """
    Return whether we made this copy, with this body and for this mailbox.

    `core.origin` decides whether a copy for this mailbox may be where it was found: its broker
    may have moved it to a dead queue.
    """
    lineage = message.lineage
    return lineage is not None and keys.verifies(
        lineage.signature, _LINEAGE, *_lineage_parts(message, lineage, mailbox)
    )


def _lineage_parts(message: Message, lineage: Lineage, mailbox: str) -> tuple[Part, ...]:
    # Not the id: some brokers give a message a new one each time it is sent.
    return (
        mailbox,
        body_digest(message.body),
        lineage.letter_id,
        str(lineage.generation),
        lineage.campaign,
    )


class _Mac:
    """HMAC-SHA256 with a prepared key: `hmac` prepares it for every call."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def digest(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()


def _signature(key_id: str, mac: _Mac, purpose: str, parts: Sequence[Part]) -> str:
    texts = [part if isinstance(part, str) else part.hex() for part in parts]
    told = "".join([f"{len(text)}:{text}" for text in (purpose, *texts)])
    signed = b2a_base64(mac.digest(told.encode("utf-8", "surrogatepass")))
    return f"{key_id}:{signed[:43].translate(_URL_SAFE).decode()}"


def _key_id(key: bytes) -> str:
    return sha256(b"deadletter signing key\0" + key).hexdigest()[:_ID_LENGTH]
