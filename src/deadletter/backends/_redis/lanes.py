"""
Sends that are never doubled.

The server remembers the last send of every lane: one token each, whatever the
traffic. A send takes a lane nobody uses; a send whose answer got lost keeps its
lane, and its token, until the same messages are sent again.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from secrets import randbits
from typing import Final

from deadletter.core.errors import BackendError

from .errors import Unsure

_UNCLEAR: Final = 100  # sends to remember whose answer got lost


def tokens() -> Iterator[str]:
    """Names that nobody else has, in whatever process."""
    # Not from the dice handed in, since seeded ones would repeat themselves.
    start = f"{randbits(64):x}"
    return (f"{start}-{number:x}" for number in count())


class Lanes:
    """The lanes of one producer into one mailbox."""

    def __init__(self) -> None:
        self._tokens = tokens()
        self._free: list[str] = []  # the last token of each
        self._unclear: dict[Hashable, tuple[str, str]] = {}

    @contextmanager
    def lane(self, what: Hashable) -> Iterator[tuple[str, str]]:
        """A token to send this with, and the one that was last on its lane."""
        known = self._unclear.pop(what, None) if self._unclear else None
        token, before = known or (next(self._tokens), self._last())
        try:
            yield token, before
        except BackendError as error:
            if isinstance(error, Unsure):
                self._remember(what, token, before)
            elif before:
                self._free.append(before)  # the server said no: nothing was done
            raise
        except BaseException:
            self._remember(what, token, before)  # cancelled, but it goes on
            raise
        self._free.append(token)

    def _last(self) -> str:
        return self._free.pop() if self._free else ""

    def _remember(self, what: Hashable, token: str, before: str) -> None:
        while len(self._unclear) >= _UNCLEAR:
            self._unclear.pop(next(iter(self._unclear)))
        self._unclear[what] = token, before
