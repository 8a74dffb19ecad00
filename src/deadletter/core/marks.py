"""
Sums by identity: numbers that are added up for what comes and taken off for what goes.

Counting alone does not notice that a message was replaced by another. So each message,
letter and part of a campaign has a mark, a number made of what it is, and the marks of
many add up to one number. The sum of what came, less the sum of what went, is the sum
of what is there; it is kept with the counts, once per batch. Sums are modulo 2^62, so
that adding two of them fits into what databases call an integer.

Marks are made with a key that is not in the database, where there is one: without it
nobody can compute a sum anew. Without any key they show mistakes and damage only. All
marks of one sum are made with one key, whose id is kept beside the sum.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from typing import Final, TypeAlias
from zlib import crc32

from .campaign import Outcome
from .ids import body_digest
from .message import Message

MASK: Final = (1 << 62) - 1
"""Sums are modulo this and one."""
NO_KEY: Final = bytes(4)
"""The id of no key."""

ItemMoves: TypeAlias = Mapping[tuple[int, Outcome | None, Outcome], Collection[int]]
"""Letters by campaign and by the outcomes they had before and have now."""

_MESSAGE: Final = b"dlq-mark-message"
_TEXT: Final = b"dlq-mark-text"
_SIZE: Final = 8  # bytes of a mark
_BODY: Final = blake2b(digest_size=16)  # as `body_digest` makes it


class Marks:
    """Marks made with one key, or without any."""

    __slots__ = ("_is_keyed", "_of_message", "_of_text", "key_id")

    def __init__(self, key_id: bytes = NO_KEY, key: bytes = b"") -> None:
        self.key_id = key_id
        self._is_keyed = bool(key)
        # Copied for each mark, which is faster than beginning with the key.
        self._of_message = blake2b(digest_size=_SIZE, key=key, person=_MESSAGE)
        self._of_text = blake2b(digest_size=_SIZE, key=key, person=_TEXT)

    def messages(self, messages: Sequence[Message]) -> int:
        """Return the sum of the marks of messages."""
        # In one place, without a call for each: this is in the way of every message.
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
        # Without a key a checksum: every message pays for it twice.
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
        if not self._is_keyed:  # one that databases can compute as well
            return int.from_bytes(sha256(encoded).digest()[:_SIZE]) & MASK
        return _number(self._of_text.copy(), encoded)

    def texts(self, counts: Mapping[str, int]) -> int:
        """Return the sum of the marks of texts, each as often as it counts."""
        # In one place, as of messages: every letter that is filed has one.
        if self._is_keyed:
            return sum([self.text(text) * n for text, n in counts.items()]) & MASK
        total = 0
        for text, n in counts.items():
            hashed = sha256(text.encode("utf-8", "surrogatepass")).digest()
            total += int.from_bytes(hashed[:_SIZE]) * n
        return total & MASK

    def item(self, campaign: int, letter: int, outcome: str) -> int:
        """Return the mark of a letter's part in a campaign, by their numbers."""
        return self.text(f"{campaign}/{letter}/{outcome}")

    def items(self, campaign: int, outcome: str, letters: Iterable[int]) -> int:
        """Return the sum of the marks of letters with one outcome in a campaign."""
        before, after = f"{campaign}/".encode(), f"/{outcome}".encode()
        if self._is_keyed:
            begun = self._of_text
            parts = [before + b"%d" % one + after for one in letters]
            return sum([_number(begun.copy(), part) for part in parts]) & MASK
        # In one place, as of messages: a campaign has many letters.
        hashes = [sha256(before + b"%d" % one + after).digest() for one in letters]
        return sum([int.from_bytes(one[:_SIZE]) for one in hashes]) & MASK


def _number(hash_: blake2b, value: bytes) -> int:
    hash_.update(value)
    return int.from_bytes(hash_.digest()) & MASK


PLAIN: Final = Marks()
"""Marks made without a key."""


def item_changes(
    moves: ItemMoves, marks: Callable[[int, Outcome], Marks]
) -> list[tuple[int, Outcome, int, int, bytes]]:
    """
    Return what changes in the sums of campaigns, which are kept by outcome.

    Each is the campaign, the outcome, how many letters more or less have it, what the
    sum grows by, and the id of the key it is made with. `marks` says of what each sum
    is made.
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
        (*place, counts[place], sums[place] & MASK, marks(*place).key_id)
        for place in sorted(sums)
    ]


def weight(fate: str) -> int:
    """
    Return what one message adds to the sum of its fate beside its mark.

    With it a sum belongs to its fate and its count: counts that were swapped, or
    changed on both sides at once, no longer fit.
    """
    return crc32(fate.encode()) >> 1 | 1


def leaving(fate: str, count: int, marks: int) -> int:
    """Return what `count` messages with this sum of marks add to that of a fate."""
    return (marks + count * weight(fate)) & MASK


def left_over(counts: Mapping[str, int], sums: Mapping[str, int]) -> int:
    """
    Return the sum of marks that must be there, by what came and what went.

    What came is called `sent`; everything else is a fate by which messages went.
    """
    bare = {
        fate: sums.get(fate, 0) - counts.get(fate, 0) * weight(fate)
        for fate in counts.keys() | sums.keys()
    }
    sent = bare.pop("sent", 0)
    return (sent - sum(bare.values())) & MASK
