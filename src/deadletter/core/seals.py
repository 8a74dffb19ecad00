"""
Seals: what shows that a letter or an audit entry is as it was written.

A seal is a hash over everything it covers. With a key that is not kept in the
database, only those who have the key can make one; without a key, anybody can, and a
seal shows damage but not intent. The key is derived from the signing keys of the
settings for this purpose alone. Each seal names its key: the first of a list seals,
all of them verify.

A letter has two. One is on its message (identity, headers, body), one on its story (why
it died, its attempts, its history); each is renewed when its part is changed by us.
"""

import hmac
from collections.abc import Callable, Sequence
from datetime import UTC
from enum import Enum
from hashlib import blake2b
from typing import Any, Final

import msgspec

from .escaping import each_text, stored
from .letter import AuditEntry, LetterHead
from .marks import NO_KEY, Marks

KEPT: Final = b"k"
"""Sealed when it was filed."""
EDITED: Final = b"e"
"""Sealed when a person edited the message."""
FOUND: Final = b"f"
"""Sealed later, as it was found then: what happened before is not known."""

_SIZE: Final = 16
_MOST: Final = (1 << 63) - 1  # as much as databases can count
_PURPOSE: Final = b"dlq-office-seal"
_SUMS: Final = b"dlq-office-sums"
_MESSAGE: Final = b"m"
_STORY: Final = b"s"
_pack: Final = msgspec.msgpack.Encoder().encode


class Verdict(Enum):
    """What looking at a seal told."""

    GOOD = "good"
    BAD = "bad"
    ABSENT = "absent"  # of the time before seals
    UNKNOWN = "unknown"  # made with a key that is not in the list


class Sealing:
    """The keys of one office's seals; without any, seals are plain hashes."""

    __slots__ = ("_begun", "_current", "_keys", "_marks")

    def __init__(self, *keys: bytes) -> None:
        self.use(keys)

    def use(self, keys: Sequence[bytes]) -> None:
        """Seal with the first of these keys from now on, and verify with all."""
        derived = [blake2b(key, person=_PURPOSE, digest_size=32) for key in keys]
        found = [one.digest() for one in derived]
        self._keys = {_key_id(key): key for key in found}
        self._keys[NO_KEY] = b""
        self._current = _key_id(found[0]) if found else NO_KEY
        self._marks = {id_: _marks(id_, key) for id_, key in self._keys.items()}
        self._begun: dict[bytes, blake2b] = {}

    @property
    def key_id(self) -> bytes:
        """The id of the key that seals now."""
        return self._current

    @property
    def is_keyed(self) -> bool:
        """Whether seals are made with a key."""
        return self._current != NO_KEY

    def has(self, key_id: bytes) -> bool:
        """Return whether the key of this id is ours."""
        return key_id in self._keys

    def marks(self, key_id: bytes | None = None) -> Marks:
        """
        Return the marks of sums that are made with a key, by its id.

        Those without a key where that one is not ours: then the sum no longer fits,
        and whoever has the key is told so by `verify`.
        """
        if key_id is None:
            key_id = self._current
        return self._marks.get(key_id) or self._marks[NO_KEY]

    def message(
        self, head: LetterHead, digest: bytes, rest: bytes, kind: bytes = KEPT
    ) -> bytes:
        """The seal of a letter's message: its body's digest, and what else it has."""
        return self._sealed(_MESSAGE + kind, _message(head, digest, rest))

    def story(self, head: LetterHead, more: Sequence[Any], kind: bytes = KEPT) -> bytes:
        """The seal of a letter's story; `more` is its frame, history and counts."""
        return self._sealed(_STORY + kind, _story(head, more))

    def check_message(
        self, seal: bytes | None, head: LetterHead, digest: bytes, rest: bytes
    ) -> Verdict:
        """Whether a letter's message is the one that was sealed."""
        return self._checked(seal, _MESSAGE, lambda: _message(head, digest, rest))

    def check_story(
        self, seal: bytes | None, head: LetterHead, more: Sequence[Any]
    ) -> Verdict:
        """Whether a letter's story is the one that was sealed."""
        return self._checked(seal, _STORY, lambda: _story(head, more))

    def knows(self, seal: bytes) -> bool | None:
        """Whether a letter's seal was made with a key; None: one that is not ours."""
        key = self._keys.get(seal[1:5])
        return None if key is None else bool(key)

    def is_current(self, seal: bytes | None) -> bool:
        """Whether a seal was made with the key that seals now."""
        return seal is not None and seal[1:5] == self._current

    def entry(self, previous: str, entry: AuditEntry) -> str:
        """The seal of an audit entry that follows the one sealed with `previous`."""
        hash_ = entry_hash(previous, entry, self._keys[self._current])
        return f"{self._current.hex()}:{hash_}" if self.is_keyed else hash_

    def check_entry(self, entry: AuditEntry) -> Verdict:
        """Whether an audit entry is as it was sealed."""
        key_id, colon, hash_ = entry.hash.rpartition(":")
        key = self._keys.get(_bytes(key_id)) if colon else b""
        if key is None:
            return Verdict.UNKNOWN
        real = entry_hash(entry.previous, entry, key)
        return Verdict.GOOD if real == hash_ else Verdict.BAD

    def _sealed(self, purpose: bytes, covered: bytes) -> bytes:
        begun = self._begun.get(purpose)
        if begun is None:  # to be copied, which is faster than beginning with the key
            key = self._keys[self._current]
            begun = blake2b(digest_size=_SIZE, key=key, person=purpose)
            self._begun[purpose] = begun
        hash_ = begun.copy()
        hash_.update(covered)
        return purpose[1:] + self._current + hash_.digest()

    def _checked(
        self, seal: bytes | None, part: bytes, covered: Callable[[], bytes]
    ) -> Verdict:
        if seal is None:
            return Verdict.ABSENT
        key = self._keys.get(seal[1:5])
        if key is None:
            return Verdict.UNKNOWN
        hash_ = blake2b(
            covered(), digest_size=_SIZE, key=key, person=part + seal[:1]
        ).digest()
        return Verdict.GOOD if hmac.compare_digest(hash_, seal[5:]) else Verdict.BAD


def is_keyed(seal: str) -> bool:
    """Whether the seal of an audit entry was made with a key."""
    return ":" in seal


def entry_hash(previous: str, entry: AuditEntry, key: bytes = b"") -> str:
    """Hash an audit entry together with the seal of the one before it."""
    moment = entry.at.astimezone(UTC).isoformat(timespec="microseconds")
    digest = blake2b(digest_size=32, key=key)
    for part in (
        *(previous, str(entry.seq), moment, entry.actor, entry.action),
        *(entry.target, entry.reason, entry.detail),
    ):
        encoded = part.encode("utf-8", "surrogatepass")
        # Lengths go in as well, so that moving a letter from the end of one
        # text to the beginning of the next does not go unnoticed.
        digest.update(b"%d:" % len(encoded))
        digest.update(encoded)
    return digest.hexdigest()


def _marks(key_id: bytes, key: bytes) -> Marks:
    derived = blake2b(key, person=_SUMS, digest_size=32).digest() if key else b""
    return Marks(key_id, derived)


def _key_id(key: bytes) -> bytes:
    return blake2b(key, person=b"dlq-key-id", digest_size=4).digest()


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _message(head: LetterHead, digest: bytes, rest: bytes) -> bytes:
    # All but the last are of one length, or say how long they are.
    return digest + _packed((head.id,)) + rest


def _story(head: LetterHead, more: Sequence[Any]) -> bytes:
    frame, history, generation, spent = more
    return _packed(
        (
            head.id,
            head.source,
            head.message_id,
            head.partition,
            head.business_key,
            head.reason,
            head.reason_text,
            head.trouble,
            head.code,
            head.error_type,
            head.error_text,
            head.attempts,
            head.replays,
            head.first_failed_at,
            head.dead_at,
            head.consumer,
            head.version,
            head.trace_id,
            head.conflict,
            frame,
            history,
            min(generation, _MOST),
            spent,
        )
    )


def _packed(fields: tuple[Any, ...]) -> bytes:
    try:
        return _pack(fields)
    except UnicodeEncodeError:  # lone surrogates, which are no text to msgpack
        return _pack([each_text(stored, field) for field in fields])


PLAIN: Final = Sealing()
"""Seals without a key, for whoever was given none."""
