"""Transactions on saved searches."""

from datetime import datetime

from deadletter.core.audit import act
from deadletter.core.letter import By
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
    entry = act("save-search", _target(search.name), by, at=now, detail=search.query)
    await store.append_audit([entry])
    return search


async def delete(
    store: LetterOperations, name: str, by: By, now: datetime, *, owner: str | None
) -> SavedSearch:
    """Delete a search and return it. Raises NotFound if it is not there, or not theirs."""
    old = check_deleting(name, await store.find_searches(), owner=owner)
    await store.delete_search(name)
    entry = act("delete-search", _target(name), by, at=now, detail=old.query)
    await store.append_audit([entry])
    return old


def _target(name: str) -> str:
    """Return the target of an entry, which must not look like a mailbox or letter."""
    return f"search:{name}"
