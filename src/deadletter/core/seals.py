"""
Seals: proofs that a letter or an audit entry is unchanged.

A seal is a hash over everything it covers. With a key that is not kept in the database, only
holders of the key can make one. Without a key anybody can, and a seal shows damage but not
tampering. The key is derived from the signing keys of the settings for this purpose alone. Each
seal names its key: the first of a list seals, all of them verify.

A letter has two seals: one on its message (identity, headers, body), one on its story (reason,
attempts, history). Each is renewed when we change its part.
"""

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC
from enum import Enum
from hashlib import blake2b, sha256
from struct import unpack
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec import Struct

from .campaign import Outcome
from .ids import ID_LENGTH, body_digest
from .letter import AuditEntry, LetterHead
from .message import Message
from .text import each_text, stored

# Sums by identity.
#
# Counts alone do not show that a message was replaced by another. So each message,
# letter and item of a campaign has a mark, a number computed from its identity. The sum
# of the marks that came, less those that left, must be the sum of those present. It is
# kept with the counts, once per batch. Sums are modulo 2^62, so that adding two of them
# fits into an integer of every database.
#
# Marks are made with a key that is not in the database, if one is set: nobody can
# compute a sum without it. Without a key they show mistakes and damage only. All marks
# of one sum are made with one key, whose id is kept beside the sum.

MASK: Final = (1 << 62) - 1
"""Sums are modulo `MASK + 1`."""
NO_KEY: Final = bytes(4)
"""The key id of sums and seals without a key."""

ItemMoves: TypeAlias = Mapping[tuple[int, Outcome | None, Outcome], Collection[int]]
"""The number of letters by campaign, previous outcome and new outcome."""

_MESSAGE: Final = b"dlq-mark-message"
_TEXT: Final = b"dlq-mark-text"
_SIZE: Final = 8  # bytes of a mark
_BODY: Final = blake2b(digest_size=16)  # as `body_digest` makes it
_REMEMBERED: Final = 10_000  # cached marks of groups


class Marks:
    """Marks made with one key, or without a key."""

    __slots__ = ("_is_keyed", "_known", "_of_message", "_of_text", "key_id")

    def __init__(self, key_id: bytes = NO_KEY, key: bytes = b"") -> None:
        self.key_id = key_id
        self._is_keyed = bool(key)
        self._known: dict[str, int] = {}
        # Copied for each mark, which is faster than hashing the key again.
        self._of_message = blake2b(digest_size=_SIZE, key=key, person=_MESSAGE)
        self._of_text = blake2b(digest_size=_SIZE, key=key, person=_TEXT)

    def messages(self, messages: Sequence[Message]) -> int:
        """Return the sum of the marks of messages."""
        # Inlined: this runs for every message.
        try:
            if not self._is_keyed:
                marks = [crc32(one.id.encode(), crc32(one.body)) for one in messages]
                return sum(marks) & MASK
            total = 0
            for one in messages:
                body = _BODY.copy()
                body.update(one.body)
                mark = self._of_message.copy()
                mark.update(body.digest() + one.id.encode())
                total += int.from_bytes(mark.digest())
        except UnicodeEncodeError:  # lone surrogates
            return sum([self.message(one.id, one.body) for one in messages]) & MASK
        return total & MASK

    def message(self, id_: str, body: bytes) -> int:
        """Return the mark of one message: of its id and its body together."""
        # Without a key, a checksum is enough.
        if self._is_keyed:
            return self.copy(id_, body_digest(body), 0)
        return self.copy(id_, b"", crc32(body))

    def copy(self, id_: str, digest: bytes, body_crc: int) -> int:
        """Return the mark of a message whose body is known by digest and CRC-32."""
        encoded = id_.encode("utf-8", "surrogatepass")
        if not self._is_keyed:
            return crc32(encoded, body_crc)
        return _number(self._of_message.copy(), digest + encoded)

    def text(self, text: str) -> int:
        """Return the mark of a letter's id or of a group's fingerprint."""
        encoded = text.encode("utf-8", "surrogatepass")
        if not self._is_keyed:  # one that databases can compute too
            return int.from_bytes(sha256(encoded).digest()[:_SIZE]) & MASK
        return _number(self._of_text.copy(), encoded)

    def texts(self, counts: Mapping[str, int]) -> int:
        """Return the sum of the marks of texts, each multiplied by its count."""
        return sum([self.text(text) * n for text, n in counts.items()]) & MASK

    def ids(self, ids: Collection[str]) -> int:
        """Return the sum of the marks of the ids of letters."""
        # Inlined: this runs for every letter.
        try:
            encoded = [one.encode() for one in ids]
        except UnicodeEncodeError:  # lone surrogates
            return self.texts(dict.fromkeys(ids, 1))
        if self._is_keyed:
            begun = self._of_text
            return sum([_number(begun.copy(), one) for one in encoded]) & MASK
        hashes = b"".join([sha256(one).digest() for one in encoded])
        marks: tuple[int, ...] = unpack(">" + "Q24x" * len(encoded), hashes)
        return sum(marks) & MASK

    def groups(self, counts: Mapping[str, int]) -> int:
        """Return the same sum as `texts` for fingerprints of groups, whose marks are cached."""
        known, total = self._known, 0
        for name, n in counts.items():
            mark = known.get(name)
            if mark is None:
                mark = known[name] = self.text(name)
            total += mark * n
        if len(known) > _REMEMBERED:
            known.clear()
        return total & MASK

    def item(self, campaign: int, letter: int, outcome: str) -> int:
        """Return the mark of a letter's item in a campaign, by the numbers of both."""
        return self.text(f"{campaign}/{letter}/{outcome}")

    def items(self, campaign: int, outcome: str, letters: Iterable[int]) -> int:
        """Return the sum of the marks of letters with one outcome in a campaign."""
        before, after = f"{campaign}/".encode(), f"/{outcome}".encode()
        if self._is_keyed:
            begun = self._of_text
            parts = [before + b"%d" % one + after for one in letters]
            return sum([_number(begun.copy(), part) for part in parts]) & MASK
        # Inlined: a campaign has many letters.
        hashes = [sha256(before + b"%d" % one + after).digest() for one in letters]
        return sum([int.from_bytes(one[:_SIZE]) for one in hashes]) & MASK


def _number(hash_: blake2b, value: bytes) -> int:
    hash_.update(value)
    return int.from_bytes(hash_.digest()) & MASK


def item_changes(
    moves: ItemMoves, marks: Callable[[int, Outcome], Marks]
) -> list[tuple[int, Outcome, int, int, bytes]]:
    """
    Return the changes in the sums of campaigns, which are kept by outcome.

    Each has the campaign, the outcome, the change in the number of letters, the change of the
    sum, and the id of its key. `marks` gives the marks of each sum.
    """
    counts: Counter[tuple[int, Outcome]] = Counter()
    sums: Counter[tuple[int, Outcome]] = Counter()
    for (campaign, old, new), letters in moves.items():
        for outcome, sign in ((new, 1), (old, -1)):
            if outcome is not None and letters:
                place = (campaign, outcome)
                counts[place] += sign * len(letters)
                total = marks(campaign, outcome).items(campaign, outcome, letters)
                sums[place] += sign * total
    return [
        (*place, counts[place], sums[place] & MASK, marks(*place).key_id) for place in sorted(sums)
    ]


def weight(fate: str) -> int:
    """
    Return what one message adds to the sum of its fate beside its mark.

    It ties a sum to its fate and its count: counts that were swapped, or changed on both sides
    at once, no longer fit.
    """
    return crc32(fate.encode()) >> 1 | 1


def leaving(fate: str, count: int, marks: int) -> int:
    """Return what `count` messages with this sum of marks add to the sum of a fate."""
    return (marks + count * weight(fate)) & MASK


def left_over(counts: Mapping[str, int], sums: Mapping[str, int]) -> int:
    """
    Return the expected sum of marks of the messages present.

    `sent` counts messages that came; every other fate counts messages that left.
    """
    bare = {
        fate: sums.get(fate, 0) - counts.get(fate, 0) * weight(fate)
        for fate in counts.keys() | sums.keys()
    }
    sent = bare.pop("sent", 0)
    return (sent - sum(bare.values())) & MASK


KEPT: Final = b"k"
"""Sealed when it was filed."""
EDITED: Final = b"e"
"""Sealed when a person edited the message."""
FOUND: Final = b"f"
"""Sealed later, as it was found then; its earlier changes are not covered."""

_KINDS: Final = (KEPT, EDITED, FOUND)
_SEALS_SIZE: Final = 16
_MOST: Final = (1 << 63) - 1  # the largest integer of databases
_PURPOSE: Final = b"dlq-office-seal"
_SUMS: Final = b"dlq-office-sums"
_SEALS_MESSAGE: Final = b"m"
_STORY: Final = b"s"
_AN_ID: Final = bytes([0x91, 0xA0 | ID_LENGTH])  # before an id, in MessagePack
_pack: Final = msgspec.msgpack.Encoder().encode


class Verdict(Enum):
    """The result of checking one seal."""

    GOOD = "good"
    BAD = "bad"
    ABSENT = "absent"  # older than seals
    UNKNOWN = "unknown"  # made with a key that is not in the list


class Sealing:
    """The keys of one office's seals; without any, seals are plain hashes."""

    __slots__ = ("_current", "_keys", "_marks", "_messages", "_stories")

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
        # Copied for each seal, which is faster than hashing the key again.
        self._messages = {kind: self._begun(_SEALS_MESSAGE, kind) for kind in _KINDS}
        self._stories = {kind: self._begun(_STORY, kind) for kind in _KINDS}

    @property
    def key_id(self) -> bytes:
        """The id of the key that makes new seals."""
        return self._current

    @property
    def is_keyed(self) -> bool:
        """Return whether seals are made with a key."""
        return self._current != NO_KEY

    def has(self, key_id: bytes) -> bool:
        """Return whether we have the key with this id."""
        return key_id in self._keys

    def marks(self, key_id: bytes | None = None) -> Marks:
        """
        Return the marks made with a key, by its id.

        For an unknown key, returns marks without a key: the sum then does not fit, and `verify`
        reports it to holders of the key.
        """
        if key_id is None:
            key_id = self._current
        return self._marks.get(key_id) or self._marks[NO_KEY]

    def message(self, head: LetterHead, digest: bytes, rest: bytes, kind: bytes = KEPT) -> bytes:
        """Return the seal of a letter's message: of its body's digest and its other fields."""
        before, begun = self._messages[kind]
        hash_ = begun.copy()
        hash_.update(_message(head, digest, rest))
        return before + hash_.digest()

    def story(self, head: LetterHead, more: Sequence[Any], kind: bytes = KEPT) -> bytes:
        """Return the seal of a letter's story; `more` is its frame, history and counts."""
        before, begun = self._stories[kind]
        hash_ = begun.copy()
        hash_.update(_story(head, more))
        return before + hash_.digest()

    def check_message(
        self, seal: bytes | None, head: LetterHead, digest: bytes, rest: bytes
    ) -> Verdict:
        """Return whether a letter's message matches its seal."""
        return self._checked(seal, _SEALS_MESSAGE, lambda: _message(head, digest, rest))

    def check_story(self, seal: bytes | None, head: LetterHead, more: Sequence[Any]) -> Verdict:
        """Return whether a letter's story matches its seal."""
        return self._checked(seal, _STORY, lambda: _story(head, more))

    def knows(self, seal: bytes) -> bool | None:
        """Return whether a letter's seal was made with a key; None: with an unknown key."""
        key = self._keys.get(seal[1:5])
        return None if key is None else bool(key)

    def is_current(self, seal: bytes | None) -> bool:
        """Return whether a seal was made with the current key."""
        return seal is not None and seal[1:5] == self._current

    def entry(self, previous: str, entry: AuditEntry) -> str:
        """Return the seal of an audit entry that follows the one sealed with `previous`."""
        hash_ = entry_hash(previous, entry, self._keys[self._current])
        return f"{self._current.hex()}:{hash_}" if self.is_keyed else hash_

    def check_entry(self, entry: AuditEntry) -> Verdict:
        """Return whether an audit entry matches its seal."""
        key_id, colon, hash_ = entry.hash.rpartition(":")
        key = self._keys.get(_bytes(key_id)) if colon else b""
        if key is None:
            return Verdict.UNKNOWN
        real = entry_hash(entry.previous, entry, key)
        return Verdict.GOOD if real == hash_ else Verdict.BAD

    def _begun(self, part: bytes, kind: bytes) -> tuple[bytes, blake2b]:
        """Return the prefix of a seal, and its hash before any data."""
        key = self._keys[self._current]
        begun = blake2b(digest_size=_SEALS_SIZE, key=key, person=part + kind)
        return kind + self._current, begun

    def _checked(self, seal: bytes | None, part: bytes, covered: Callable[[], bytes]) -> Verdict:
        if seal is None:
            return Verdict.ABSENT
        key = self._keys.get(seal[1:5])
        if key is None:
            return Verdict.UNKNOWN
        hash_ = blake2b(
            covered(), digest_size=_SEALS_SIZE, key=key, person=part + seal[:1]
        ).digest()
        return Verdict.GOOD if hmac.compare_digest(hash_, seal[5:]) else Verdict.BAD


def is_keyed(seal: str) -> bool:
    """Return whether the seal of an audit entry was made with a key."""
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
        # Lengths are hashed as well, so that moving a character from the end of one
        # text to the beginning of the next shows.
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
    id_ = head.id
    if len(id_) == ID_LENGTH and id_.isascii():  # like all ids that we make
        return digest + _AN_ID + id_.encode() + rest
    return digest + _packed((id_,)) + rest


def _story(head: LetterHead, more: Sequence[Any]) -> bytes:
    frame, history, generation, spent = more
    fields = (
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
    return _packed(fields)


def _packed(fields: tuple[Any, ...]) -> bytes:
    try:
        return _pack(fields)
    except UnicodeEncodeError:  # lone surrogates, which msgpack rejects
        return _pack([each_text(stored, field) for field in fields])


PLAIN: Final = Sealing()
"""Seals without a key."""


# Checks of the audit: its chain, and its entries against the stored campaigns.

NAMED: Final = 10  # findings of one kind that are listed
ACCEPTED: Final = "seal"
"""The action of a key holder who accepts the entries before it."""

_REMOVALS: Final = ("purge", "expire")


class Ends(Struct, frozen=True):
    """The end of the audit chain and the counters that an office keeps beside it."""

    seq: int  # of the last audit entry
    hash: str
    purged: int
    expired: int


class Start(Struct, frozen=True):
    """The recorded start of a campaign: actor, reason and query."""

    actor: str
    reason: str
    query: str


class Chain:
    """The audit from its first entry, checked page by page."""

    def __init__(self, sealing: Sealing = PLAIN, *, seq: int = 0, previous: str = "") -> None:
        self.seq = seq
        self.hash = previous
        self.unkeyed = 0  # entries sealed without a key
        self.unknown = 0  # entries sealed with a key that we do not have
        self.plans: Counter[str] = Counter()  # letters, by campaign
        self._starts: dict[str, AuditEntry] = {}  # the first entry of each campaign
        self._removed: Counter[str] = Counter()
        self._sealing = sealing
        self._doubtful = 0  # entries without a key that no key holder has accepted
        self._last_doubtful = 0
        self.broken: list[str] = []  # findings so far, one sentence each

    def add(self, entries: Iterable[AuditEntry]) -> None:
        """Check the entries that follow, oldest first."""
        for entry in entries:
            self._check_place(entry)
            self._check_seal(entry)
            self.seq, self.hash = entry.seq, entry.hash
            if entry.action in _REMOVALS:
                self._removed[entry.action] += 1
            elif entry.action == "replay":
                self.plans[entry.target] += _planned(entry.detail)
                self._starts.setdefault(entry.target, entry)

    def findings(self, ends: Ends) -> list[str]:
        """Return the findings, one sentence each, after all entries were added."""
        found = self.broken[:NAMED]
        if (self.seq, self.hash) != (ends.seq, ends.hash):
            found.append(f"the audit ends with entry {self.seq}, but {ends.seq} were written")
        if self._sealing.is_keyed and self._doubtful:
            found.append(
                without_key(
                    f"{self._doubtful} audit entries up to {self._last_doubtful} are sealed"
                )
            )
        for action, told in zip(_REMOVALS, (ends.purged, ends.expired), strict=True):
            real = self._removed[action]
            if told != real:
                found.append(
                    f"{told} letters are counted as {action}d, but the audit tells of {real}"
                )
        return found

    def missing_plans(self, campaigns: Mapping[str, int]) -> list[str]:
        """Return campaigns that differ from the audit; `campaigns` has their letters by id."""
        found = []
        for id_ in self.plans.keys() | campaigns.keys():
            told, real = self.plans[id_], campaigns.get(id_)
            if real is None:
                found.append(f"campaign {id_} is missing: the audit tells of its start")
            elif id_ not in self.plans:
                found.append(f"campaign {id_} was never started by anybody")
            elif told != real:
                found.append(f"campaign {id_} has {real} letters, but the audit says {told}")
        return sorted(found)[:NAMED]

    def changed_plans(self, campaigns: Mapping[str, Start]) -> list[str]:
        """Return campaigns whose recorded start differs from the audit."""
        found = []
        for id_, told in campaigns.items():
            entry = self._starts.get(id_)
            if entry is None:
                continue  # a missing start is a finding of its own
            query = entry.detail.partition(": ")[2]
            if told != Start(entry.actor, entry.reason, query):
                found.append(
                    f"campaign {id_} was changed: who started it, why, or which letters"
                    " were searched for is not what the audit says"
                )
        return sorted(found)[:NAMED]

    def _check_place(self, entry: AuditEntry) -> None:
        if entry.seq != self.seq + 1:
            self.broken.append(
                f"audit entry {self.seq + 1} is missing: the next one is {entry.seq}"
            )
        elif entry.previous != self.hash:
            self.broken.append(f"audit entry {entry.seq} does not follow the one before it")

    def _check_seal(self, entry: AuditEntry) -> None:
        verdict = self._sealing.check_entry(entry)
        if verdict is Verdict.BAD:
            self.broken.append(f"audit entry {entry.seq} is not as it was written")
        elif verdict is Verdict.UNKNOWN:
            self.unknown += 1
        elif not is_keyed(entry.hash):
            self.unkeyed += 1
            self._doubtful += 1
            self._last_doubtful = entry.seq
        elif entry.action == ACCEPTED:
            self._doubtful = 0


def without_key(what: str) -> str:
    """Return the finding that something was made without the key that is set."""
    return (
        f"{what} without the key: from before it was set, by a process that does not"
        " have it, or by somebody who wrote it anew; read `dlq audit`, then accept it"
        " as it is now with `dlq audit seal`"
    )


def check_chain(entries: Iterable[AuditEntry], *, seq: int = 0, previous: str = "") -> list[str]:
    """
    Return the findings about a part of the audit, one sentence each.

    The part follows entry `seq`, sealed with `previous`; by default it starts the audit.
    """
    chain = Chain(seq=seq, previous=previous)
    chain.add(entries)
    return chain.broken


def _planned(detail: str) -> int:
    """Return the number at the beginning of the detail, such as 1,000."""
    number = detail.partition(" ")[0].replace(",", "")
    return int(number) if number.isascii() and number.isdigit() else 0
