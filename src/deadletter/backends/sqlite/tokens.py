"""Claim tokens: never the same twice, in whatever process."""

from itertools import count
from secrets import randbits


class Tokens:
    """
    Unique numbers that fit SQLite's integers.

    Each process counts up from a place of its own, drawn from 2^40; it is not
    drawn from the dice handed in, since seeded ones would repeat themselves.
    """

    def __init__(self) -> None:
        self._numbers = count(randbits(40) << 22)

    def next(self) -> int:
        """A number nobody has had before. Safe from any thread."""
        return next(self._numbers)
