"""The methods that letters of an office have, here or over HTTP, and their results."""

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from msgspec import Struct

from deadletter.core.letter import By, Changes, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query.ast import Node
from deadletter.ports import Page

from .verbs import LetterVerbs, Moved
from .view import LetterView, Moment


class LetterCount(Struct, frozen=True):
    """The number of letters that a search finds; a lower bound unless `is_all`."""

    letters: int
    is_all: bool = True


class LetterDetails(Struct, frozen=True, kw_only=True):
    """One letter for a person: its masked view, its story, and on request its messages."""

    view: LetterView
    moments: tuple[Moment, ...]
    left_out: bool = False  # the story has more acts than `moments` holds
    message: Message | None = None  # only if revealed
    original: Message | None = None  # only if revealed, and the letter was edited


class LettersProtocol(LetterVerbs, Protocol):
    """The letters of an office: `Letters` here, or the same over HTTP."""

    async def search(self, query: str = "", *, limit: int = 50, after: str | None = None) -> Page:
        """
        Return one page of letters, newest death first.

        Args:
            query: A search such as `is:pending source:orders`; empty means all letters.
            limit: The most letters on the page.
            after: The `after` of the previous page, to continue it.
        """

    def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Iterate over all letters that a search finds, up to `limit`, page by page."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """Return the ids of the letters that a search finds now, up to `limit`."""

    async def count(self, query: str = "") -> LetterCount:
        """Count the letters that a search finds, as far as that is cheap."""

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""

    async def head(self, text: str) -> LetterHead:
        """Return the list entry of one letter, by its id or the beginning of it."""

    async def details(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> LetterDetails:
        """
        Return one letter and its story; secrets are masked.

        Args:
            text: The id of the letter, or the beginning of it.
            by: Who looks at it.
            reveal: Show what is masked. This is recorded in the audit.
            capture: Include the header `dlq-found` of drained letters.
        """

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        """
        Return the complete message of a letter; this is recorded in the audit.

        Args:
            text: The id of the letter, or the beginning of it.
            by: Who reads it.
            original: Return the message as it died, not as it was edited.
            shown: False if no person sees it. A server records every request anyway.
        """

    async def repro(
        self, text: str, app: str, by: By, *, original: bool = False, reveal: bool = False
    ) -> dict[str, str]:
        """
        Return the files of a failing test of a letter, by name; see `exports.repro`.

        Args:
            text: The id of the letter, or the beginning of it.
            app: The application with the handler, as module:name.
            by: Who asks for it.
            original: Use the message as it died, not as it was edited.
            reveal: Do not mask secrets. This is recorded in the audit.
        """

    async def edit(
        self, text: str, changes: Changes, by: By, *, revision: int | None = None
    ) -> LetterHead:
        """
        Change the message of an open letter; the original is kept.

        Args:
            text: The id of the letter, or the beginning of it.
            changes: The new values; everything else stays.
            by: Who changes it, and why.
            revision: Raise `Conflict` if the letter is no longer at this revision.
        """

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""
