"""
Many rows to a statement, both ways.

Every step of SQLite lets go of the interpreter and, beside a busy thread, waits
milliseconds to get it back. So a batch is written by few statements of many rows
each, and read back as ONE row holding a JSON array.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

_VARIABLES: Final = 32_000  # SQLite allows 32,766 in a statement

Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Sequence[Any] | dict[str, Any]


def fetch(
    connection: sqlite3.Connection, names: str, select: str, values: Values = ()
) -> list[Row]:
    """
    The rows of a select whose columns are called `names`.

    Blobs are to be selected as `hex(…)`. Text that had to be stored as a blob
    comes back as the text it was.
    """
    try:
        (packed,) = connection.execute(_packed(names, select), values).fetchone()
    except sqlite3.OperationalError as error:
        if "JSON cannot hold BLOB" not in str(error):
            raise
        found = connection.execute(_plain(names, select), values).fetchall()
        return [[shown(value) for value in row] for row in found]
    rows: list[Row] = msgspec.json.decode(packed)
    return rows


def write(
    connection: sqlite3.Connection,
    before: str,
    rows: Sequence[Row],
    after: str = "",
    *,
    first: Row = (),
) -> None:
    """
    Run `before (?, ?), (?, ?) … after` with these rows, in few statements.

    The values of `first` are for marks in `before`.
    """
    for part in _parts(rows):
        values = [*first, *chain.from_iterable(part)]
        connection.execute(_marked(before, len(part), len(part[0]), after), values)


def ids(texts: Iterable[str]) -> str:
    """Texts for `json_each(?)`: each once, without those that no id can be."""
    return msgspec.json.encode(
        [text for text in dict.fromkeys(texts) if text.isascii()]
    ).decode()


def numbers(values: Iterable[int]) -> str:
    """Numbers for `json_each(?)`."""
    return msgspec.json.encode(list(values)).decode()


def packed(rows: Sequence[Row]) -> str:
    """Rows for `json_each(?)`, of numbers and of texts that are ours."""
    return msgspec.json.encode(rows).decode()


def stored(text: str | None) -> str | bytes | None:
    """
    A text as it can be stored: as itself, or as a blob of its bytes.

    SQLite's functions take a NUL for the end, and lone surrogates, which ids of
    foreign brokers may hold, are no text to it.
    """
    if text is None or (text.isascii() and "\0" not in text):
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    if b"\0" in encoded or not _is_utf8(encoded):
        return encoded
    return text


def storable(row: Row) -> Row:
    """A row with all its texts as they can be stored."""
    texts = "".join([value for value in row if type(value) is str])
    if texts.isascii() and "\0" not in texts:  # as good as always
        return row
    return [stored(value) if type(value) is str else value for value in row]


def shown(value: Any) -> Any:
    """A stored value as what it was."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    return value


def _is_utf8(encoded: bytes) -> bool:
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    # Sizes are powers of two, so that few statements are ever prepared.
    start = 0
    while start < len(rows):
        most = min(len(rows) - start, _VARIABLES // len(rows[0]))
        size = 1 << (most.bit_length() - 1)
        yield rows[start : start + size]
        start += size


@cache
def _marked(before: str, rows: int, columns: int, after: str) -> str:
    marks = f"({', '.join('?' * columns)})"
    return f"{before} {', '.join([marks] * rows)} {after}"


def _packed(names: str, select: str) -> str:
    # Every part of the text is written by us; values are always bound.
    return f"SELECT json_group_array(json_array({names})) FROM ({select})"  # noqa: S608 -- see above


def _plain(names: str, select: str) -> str:
    return f"SELECT {names} FROM ({select})"  # noqa: S608 -- as in _packed
