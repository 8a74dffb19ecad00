"""The part of an office's store that keeps searches with a name."""

from collections.abc import Sequence
from typing import Protocol

from deadletter.core.letter import By
from deadletter.core.saved_search import SavedSearch


class SearchStore(Protocol):
    """A store of saved searches; `core.saved_search` has their rules."""

    async def searches(self) -> Sequence[SavedSearch]:
        """Return the saved searches, by name."""

    async def save_search(
        self, search: SavedSearch, by: By, *, replace: bool = False, owner: str | None = None
    ) -> SavedSearch:
        """
        Keep a search under its name, audited; return it as it is kept.

        With `owner`, only a new one or one of this principal. Raises Conflict as
        `core.saved_search.check_saving` says. What is saved already changes nothing.
        """

    async def delete_search(self, name: str, by: By, *, owner: str | None = None) -> SavedSearch:
        """
        Delete a saved search, audited; return it.

        With `owner`, only one of this principal. Raises NotFound if there is none.
        """
