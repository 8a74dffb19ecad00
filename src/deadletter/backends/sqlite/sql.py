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

_ODD_TEXT: Final = ("JSON cannot hold BLOB", "Could not decode to UTF-8")
_VARIABLES: Final = 32_000  # SQLite allows 32,766 in a statement

Row: TypeAlias = Sequence[Any]
Values: TypeAlias = Sequence[Any] | dict[str, Any]


def fetch(
    connection: sqlite3.Connection, names: str, select: str, values: Values = ()
) -> list[Row]:
    """
    The rows of a select whose columns are called `names`.

    Blobs are to be selected as `hex(…)`. Text that had to be stored as a blob
    comes back as the text it was; one row of damaged text does not hide the others.
    """
    try:
        (packed,) = connection.execute(_packed(names, select), values).fetchone()
    except sqlite3.OperationalError as error:
        if not is_odd_text(error):
            raise
        found = fetch_odd(connection, _plain(names, select), values)
        return [[shown(value) for value in row] for row in found]
    rows: list[Row] = msgspec.json.decode(packed)
    return rows


def is_odd_text(error: sqlite3.OperationalError) -> bool:
    """Return whether a select failed because text in a row is none."""
    return any(sign in str(error) for sign in _ODD_TEXT)


def fetch_odd(connection: sqlite3.Connection, select: str, values: Values) -> list[Row]:
    """Return the rows of a select as they are stored, whatever text is in them."""
    usual = connection.text_factory
    connection.text_factory = _text
    try:
        return connection.execute(select, values).fetchall()
    finally:
        connection.text_factory = usual


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
    if text is None or is_plain(text):
        return text
    encoded = text.encode("utf-8", "surrogatepass")
    if b"\0" in encoded or not _is_utf8(encoded):
        return encoded
    return text


def is_plain(text: str) -> bool:
    """Return whether a text is stored as itself, as nearly all are."""
    return text.isascii() and "\0" not in text


def storable(row: Row) -> Row:
    """A row with all its texts as they can be stored."""
    if is_plain("".join([value for value in row if type(value) is str])):
        return row
    return [stored(value) if type(value) is str else value for value in row]


def shown(value: Any) -> Any:
    """A stored value as what it was."""
    return _text(value) if isinstance(value, bytes) else value


def _text(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # not written by us, or damaged since
        return stored.decode("utf-8", "surrogateescape")


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
