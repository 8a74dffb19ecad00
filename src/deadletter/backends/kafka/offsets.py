"""
How far a partition has been worked, when records end out of order.

Kafka remembers one number per partition: everything below it is done. What is done
beyond it, and what somebody has been handed and not yet ended, goes into the note
that is stored beside that number. A note always fits: nothing is taken from beyond
the window.
"""

import zlib
from base64 import b85decode, b85encode
from typing import Final

import msgspec
from msgspec import Struct

WINDOW: Final = 8192  # offsets; the longest note then has below 3000 characters
_MARK: Final = "dlq1:"
_MOST: Final = 2**62  # of a count: whatever a note says


class _Note(Struct, array_like=True):
    done: bytes
    claimed: bytes
    left: bool
    tally: dict[str, int]


_read = msgspec.msgpack.Decoder(_Note).decode
_write = msgspec.msgpack.Encoder().encode


class Progress:
    """
    What has been done of a partition, and what is in somebody's hands.

    `left` says of the claims that their holder gave them up when it went; without
    it, it vanished.
    """

    __slots__ = ("_claimed", "_done", "base", "left", "tally")

    def __init__(
        self,
        base: int,
        *,
        done: int = 0,
        claimed: int = 0,
        left: bool = False,
        tally: dict[str, int] | None = None,
    ) -> None:
        self.base = base  # all below is done
        self.left = left
        self.tally = tally or {}
        self._done = done  # a bit per offset from the base on
        self._claimed = claimed
        self._advance()

    def claim(self, offset: int) -> None:
        """Somebody is handed it."""
        if not self.is_done(offset):
            self._claimed |= 1 << offset - self.base

    def unclaim(self, offset: int) -> None:
        """...and was not, after all."""
        if self.is_claimed(offset):
            self._claimed ^= 1 << offset - self.base

    def finish(self, offset: int, fate: str | None = None) -> None:
        """It has ended, once and for all; a fate is counted."""
        if self.is_done(offset):
            return
        if fate is not None:
            self.tally[fate] = self.tally.get(fate, 0) + 1
        bit = 1 << offset - self.base
        self._done |= bit
        self._claimed &= ~bit
        self._advance()

    def skip(self, start: int, end: int) -> None:
        """There are no records from `start` up to `end`, and never will be."""
        start = max(start, self.base)
        if start < end:
            self._done |= (1 << end - self.base) - (1 << start - self.base)
            self._claimed &= ~self._done
            self._advance()

    def is_done(self, offset: int) -> bool:
        """Whether it has ended."""
        return offset < self.base or bool(self._done >> offset - self.base & 1)

    def is_fresh(self, offset: int) -> bool:
        """Whether nothing is known of it, nor of any after it."""
        return offset - self.base >= max(
            self._done.bit_length(), self._claimed.bit_length()
        )

    def is_claimed(self, offset: int) -> bool:
        """Whether it is in somebody's hands."""
        return offset >= self.base and bool(self._claimed >> offset - self.base & 1)

    @property
    def claims(self) -> int:
        """How many are in somebody's hands."""
        return self._claimed.bit_count()

    def open_until(self, end: int) -> int:
        """How many of those before `end` have not ended."""
        if end <= self.base:
            return 0
        width = end - self.base
        return width - (self._done & (1 << width) - 1).bit_count()

    def note(self, *, left: bool = False) -> str:
        """What goes beside the base; `left` gives up the claims."""
        note = _Note(_bytes(self._done), _bytes(self._claimed), left, self.tally)
        return _MARK + b85encode(zlib.compress(_write(note), 1)).decode()

    def _advance(self) -> None:
        ended = (~self._done & (self._done + 1)).bit_length() - 1  # ones at the end
        if ended:
            self.base += ended
            self._done >>= ended
            self._claimed >>= ended


def read_note(base: int, note: str | None) -> Progress:
    """What a note says; one that is not ours says nothing but the base."""
    if not note or not note.startswith(_MARK) or len(note) > 10_000:
        return Progress(base)
    try:
        packed = zlib.decompressobj().decompress(
            b85decode(note.removeprefix(_MARK)), 100_000
        )
        told = _read(packed)
    except (ValueError, zlib.error, msgspec.DecodeError):
        return Progress(base)
    return Progress(
        base,
        done=_bits(told.done),
        claimed=_bits(told.claimed) & ~_bits(told.done),
        left=told.left,
        tally={fate: n for fate, n in told.tally.items() if 0 < n < _MOST},
    )


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _bits(told: bytes) -> int:
    return int.from_bytes(told[: WINDOW // 8], "little")
