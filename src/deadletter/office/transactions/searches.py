"""Transactions on saved searches."""

from datetime import datetime

from deadletter.core.audit import act
from deadletter.core.letter import By
from deadletter.core.redact import redact
from deadletter.core.saved_search import SavedSearch, check_deleting, check_saving

from .operations import LetterOperations


async def save(
    store: LetterOperations,
    search: SavedSearch,
    by: By,
    now: datetime,
    *,
    replace: bool,
    owner: str | None,
) -> SavedSearch:
    """Write a search, new or again, and return it as it is kept; see `check_saving`."""
    known = await store.find_searches()
    old = check_saving(search, known, replace=replace, owner=owner)
    if old is not None and old.query == search.query:
        return old  # somebody asked twice
    await store.put_search(search)
    await _record(store, "save-search", search, by, now)
    return search


async def delete(
    store: LetterOperations, name: str, by: By, now: datetime, *, owner: str | None
) -> SavedSearch:
    """Delete a search and return it. Raises NotFound if it is not there, or not theirs."""
    old = check_deleting(name, await store.find_searches(), owner=owner)
    await store.delete_search(name)
    await _record(store, "delete-search", old, by, now)
    return old


async def _record(
    store: LetterOperations, action: str, search: SavedSearch, by: By, now: datetime
) -> None:
    # The target must not look like a mailbox or letter, and readers see all of the audit.
    target, detail = f"search:{search.name}", redact(search.query)
    await store.append_audit([act(action, target, by, at=now, detail=detail)])
