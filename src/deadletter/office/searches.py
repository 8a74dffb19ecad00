"""Saved searches of an office: list, save and delete them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.letter import By
from deadletter.core.saved_search import SavedSearch, checked_name, checked_query, works_for
from deadletter.ports import Clock, LetterStore


class SearchLine(Struct, frozen=True, kw_only=True):
    """A saved search as a caller sees it; `can_change` also depends on the role."""

    name: str
    query: str
    saved_by: str
    saved_at: datetime
    can_change: bool = True  # it is not one of others, for callers limited to some mailboxes


class SearchesProtocol(Protocol):
    """The saved searches of an office, which everybody shares."""

    async def list(self) -> Sequence[SearchLine]:
        """Return the saved searches, by name."""

    async def save(self, name: str, query: str, by: By, *, replace: bool = False) -> SearchLine:
        """
        Save a search under a name; recorded in the audit.

        Raises QueryError for an invalid search, and Conflict if the name has another query
        and `replace` is false, or if the office has as many searches as it keeps.
        """

    async def delete(self, name: str, by: By) -> SearchLine:
        """Delete a saved search; recorded in the audit. Return what it was."""


class Searches:
    """
    The saved searches of an office that is open in this process.

    With `who`, only the searches that work for this caller are there. A caller who is
    limited to some mailboxes changes own searches only.
    """

    def __init__(self, store: LetterStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def list(self, *, who: Identity | None = None) -> Sequence[SearchLine]:
        """Return the saved searches that work for a caller, by name."""
        found = await self._store.searches()
        return [_line(one, who) for one in found if works_for(one, who)]

    async def save(
        self, name: str, query: str, by: By, *, replace: bool = False, who: Identity | None = None
    ) -> SearchLine:
        """Save a search under a name; recorded in the audit."""
        search = SavedSearch(
            name=checked_name(name),
            query=checked_query(query),
            saved_by=by.actor,
            saved_at=self._clock.now(),
            principal=by.principal,
        )
        owner = _owner(who)
        kept = await self._store.save_search(search, by, replace=replace, owner=owner)
        return _line(kept, who)

    async def delete(self, name: str, by: By, *, who: Identity | None = None) -> SearchLine:
        """Delete a saved search; recorded in the audit. Return what it was."""
        return _line(await self.take(name, by, who=who), who)

    async def take(self, name: str, by: By, *, who: Identity | None = None) -> SavedSearch:
        """Delete a saved search and return it as it was kept, for `put_back`."""
        return await self._store.delete_search(checked_name(name), by, owner=_owner(who))

    async def put_back(self, search: SavedSearch, by: By, *, who: Identity | None = None) -> None:
        """Save a deleted search again as it was, with its owner."""
        await self._store.save_search(search, by, owner=_owner(who))


def _owner(who: Identity | None) -> str | None:
    """Return the principal whose searches alone a caller may change; None for all."""
    return who.principal if who is not None and who.sources else None


def _line(search: SavedSearch, who: Identity | None) -> SearchLine:
    return SearchLine(
        name=search.name,
        query=search.query,
        saved_by=search.saved_by,
        saved_at=search.saved_at,
        can_change=search.belongs_to(_owner(who)),
    )
