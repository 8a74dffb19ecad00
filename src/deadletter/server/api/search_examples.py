"""Examples of requests and answers about saved searches."""

from datetime import UTC, datetime
from typing import Any, Final

from deadletter.office.searches import SearchLine

_LINE: Final = SearchLine(
    name="Old orders",
    query="source:orders is:open age:>24h",
    saved_by="anna",
    saved_at=datetime(2026, 11, 16, 9, 30, tzinfo=UTC),
)

SEARCHES: Final[dict[str, tuple[Any, Any]]] = {
    "list_searches": ([_LINE], None),
    "save_search": (_LINE, {"query": _LINE.query, "reason": "looked at every Monday"}),
    "delete_search": (_LINE, None),
}
"""Answers and requests by the name of the operation."""
