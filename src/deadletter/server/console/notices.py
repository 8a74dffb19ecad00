"""Notices: what was done, said on the next page that its author opens."""

from typing import Final

from msgspec import Struct

_MOST: Final = 1_000  # people with a notice


class Notice(Struct, frozen=True, kw_only=True):
    """
    A sentence about what was done, in the words of the office.

    `undo` is the path that takes it back by a POST, if there is one. `link` leads to what
    was made.
    """

    text: str
    undo: str = ""
    link: str = ""
    link_text: str = ""


class Notices:
    """The notices of one server that were not shown yet, by session or caller."""

    def __init__(self) -> None:
        self._waiting: dict[str, Notice] = {}

    def put(self, whom: str, notice: Notice) -> None:
        """Keep a notice for the next page; an earlier one is forgotten."""
        self._waiting.pop(whom, None)
        while len(self._waiting) >= _MOST:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[whom] = notice

    def take(self, whom: str) -> Notice | None:
        """Return the notice for a page and forget it."""
        return self._waiting.pop(whom, None)
