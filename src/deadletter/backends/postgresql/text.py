"""Rows whose texts may hold what PostgreSQL cannot, see `core.escaping`."""

from collections.abc import Sequence
from typing import Any

from deadletter.core.escaping import MARK, shown, stored


def storable(row: Sequence[Any]) -> Sequence[Any]:
    """A row with all its texts as they can be stored."""
    texts = "".join([value for value in row if isinstance(value, str)])
    if texts.isascii() and "\0" not in texts:  # as good as always
        return row
    return [stored(value) if isinstance(value, str) else value for value in row]


def legible(row: Sequence[Any]) -> Sequence[Any]:
    """A row with all its texts as they were."""
    if MARK in "".join([value for value in row if isinstance(value, str)]):
        return [shown(value) if isinstance(value, str) else value for value in row]
    return row
