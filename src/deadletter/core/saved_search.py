"""
Saved searches: searches with a name, which everybody in the office sees.

They are people's words, so nothing in the office depends on them. Callers who see only some
mailboxes, or masked messages, see those that work for them.
"""

import unicodedata
from collections.abc import Collection
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from .access import Identity, Role
from .errors import ConfigError, Conflict, NotFound, QueryError
from .query.ast import All, Node, Op, Term, leaves
from .query.fields import FIELDS, Kind, literal
from .query.parse import parse, show
from .query.resolve import sealed
from .redact import redact
from .text import each_text, shown, stored

MOST: Final = 200
"""Saved searches of one office."""
LONGEST_NAME: Final = 80
"""Characters of a name."""
LONGEST_QUERY: Final = 2_000
"""Characters of a saved search, as many as the search field takes."""

_TELLS_LITTLE: Final = frozenset(
    {Kind.ENUM, Kind.FLAG, Kind.NUMBER, Kind.TIME, Kind.DURATION, Kind.OUTAGE}
)
_SOURCE: Final = "source"


class SavedSearch(Struct, frozen=True, kw_only=True):
    """A search with a name; whoever saved it last owns it."""

    name: str
    query: str
    saved_by: str  # as the audit shows them
    saved_at: datetime
    principal: str = ""  # of the owner; none where access is off

    def belongs_to(self, principal: str | None) -> bool:
        """Return whether a caller may change it; None is somebody who may change all."""
        return principal is None or (bool(principal) and principal == self.principal)


def checked_name(name: str) -> str:
    """Return a name in its one form. Raises ConfigError if it is invalid."""
    tidy = unicodedata.normalize("NFC", " ".join(name.split()))
    if not tidy or len(tidy) > LONGEST_NAME or not tidy.isprintable() or tidy in {".", ".."}:
        raise ConfigError(
            f"the name of a search must have 1 to {LONGEST_NAME} printable characters,"
            f" got {name[: LONGEST_NAME + 20]!a}"
        )
    return tidy


def checked_query(query: str) -> str:
    """
    Return a search as it is saved.

    Raises QueryError, which says where, if the search is invalid, and ConfigError if it is
    empty or too long.
    """
    tidy = query.strip()
    if not show(parse(tidy)):
        raise ConfigError("the search is empty: write at least one term, such as is:open")
    if len(tidy) > LONGEST_QUERY:
        raise ConfigError(
            f"a saved search may have {LONGEST_QUERY:,} characters, this one has {len(tidy):,}"
        )
    return tidy


def check_saving(
    search: SavedSearch, known: Collection[SavedSearch], *, replace: bool, owner: str | None
) -> SavedSearch | None:
    """
    Return the search that is replaced, if there is one of this name.

    Raises Conflict if it has another query and `replace` is false, if it belongs to others,
    or if the office has as many searches as it keeps.
    """
    old = next((one for one in known if one.name == search.name), None)
    if old is None:
        if len(known) >= MOST:
            raise Conflict(
                f"the office has {MOST} saved searches, and keeps no more: delete one first"
            )
        return None
    if not old.belongs_to(owner):
        raise Conflict(f"a search of others is called {search.name!r}: choose another name")
    if old.query != search.query and not replace:
        raise Conflict(
            f"the search {search.name!r} exists with another query: choose another name, or"
            " ask to replace it"
        )
    return old


def check_deleting(name: str, known: Collection[SavedSearch], *, owner: str | None) -> SavedSearch:
    """Return the search to delete. Raises NotFound if it is not there, or not theirs."""
    for one in known:
        if one.name == name and one.belongs_to(owner):
            return one
    theirs = "" if owner is None else " of yours"
    raise NotFound(f"there is no saved search {name!r}{theirs}; `dlq searches` shows them")


def works_for(search: SavedSearch, who: Identity | None) -> bool:
    """
    Return whether a caller sees a search; None is somebody who sees everything.

    Callers limited to some mailboxes see their own searches, those that look into their
    mailboxes only, and those that tell nothing of letters, such as `is:open age:>24h`.
    Callers who see masked messages do not see searches for what is masked.
    """
    if who is None or (not who.sources and who.may(Role.OPERATOR)):
        return True
    node = _meaning(search.query)
    if node is None:
        return False
    if not who.may(Role.OPERATOR) and _is_masked(node, search.query):
        return False
    if not who.sources or search.belongs_to(who.principal):
        return True
    return _looks_into(node, who.sources) or all(
        isinstance(leaf, Term) and FIELDS[leaf.field].kind in _TELLS_LITTLE for leaf in leaves(node)
    )


@lru_cache(2 * MOST)
def _meaning(query: str) -> Node | None:
    """Return the tree of a search; None if it is of another version and no longer valid."""
    try:
        return parse(query)
    except QueryError:
        return None


def _is_masked(node: Node, query: str) -> bool:
    try:
        sealed(node, query)
    except QueryError:
        return True
    return redact(query) != query


def _looks_into(node: Node, sources: Collection[str]) -> bool:
    """Return whether a search finds letters of these mailboxes only, and names no other."""
    named = [leaf for leaf in leaves(node) if isinstance(leaf, Term) and leaf.field == _SOURCE]
    theirs = frozenset(map(literal, sources))
    if not all(theirs.issuperset(term.values) for term in named):
        return False
    terms = node.terms if isinstance(node, All) else (node,)
    return any(isinstance(term, Term) and _is_source(term) for term in terms)


def _is_source(term: Term) -> bool:
    return term.field == _SOURCE and term.op is Op.IS


def encode_search(search: SavedSearch) -> bytes:
    """Encode a search for a store."""
    return msgspec.json.encode(each_text(stored, msgspec.to_builtins(search)))


def decode_search(document: bytes | str) -> SavedSearch:
    """Decode a search."""
    return msgspec.convert(each_text(shown, msgspec.json.decode(document)), SavedSearch)
