"""Numbered migrations, applied by whoever opens the file first."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Final

from msgspec import MsgspecError

from deadletter.core.errors import ConfigError
from deadletter.core.packing import sent_of
from deadletter.core.replay_order import sortable_position

from .connection import patiently
from .rows import micros
from .text_index import lacks, set_up

MIGRATIONS: Final = files(__package__) / "migrations"
# Made by the first migration, and there ever since: a file without them is not ours.
_OURS: Final = frozenset({"mailboxes", "tally", "messages", "ledger"})


@cache
def known() -> list[tuple[int, str]]:
    """Number and text of every migration, in order."""
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in MIGRATIONS.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def version(connection: sqlite3.Connection) -> int:
    """The schema version the file has now; 0 for an empty one."""
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)


def look(connection: sqlite3.Connection) -> int:
    """
    The schema version of a file that is ours or empty, without changing anything.

    Raises ConfigError for one that is somebody else's, or of a newer version.
    """
    # Another process may migrate it meanwhile: both are of one moment.
    connection.execute("BEGIN")
    try:
        return _present(connection)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def migrate(connection: sqlite3.Connection) -> int:
    """
    Bring the file up to date and say which version that is.

    Safe however many processes do it at once: one migrates, in one transaction,
    and the others wait for it and find nothing left to do.
    """
    newest = known()[-1][0]
    if patiently(lambda: version(connection) != newest or lacks(connection)):
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            _apply(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return newest


def teach(connection: sqlite3.Connection) -> None:
    """Give a connection the functions that scripts fill new columns with."""
    connection.create_function("sent_at_of", 1, _sent_at, deterministic=True)
    connection.create_function("position_of", 1, _position, deterministic=True)


def _apply(connection: sqlite3.Connection) -> None:
    present = _present(connection)
    teach(connection)
    for number, text in known():
        if number > present:
            for statement in statements(text):
                connection.execute(statement)
    set_up(connection)
    connection.execute(f"PRAGMA user_version={known()[-1][0]}")


def _present(connection: sqlite3.Connection) -> int:
    present, newest = version(connection), known()[-1][0]
    names = _names(connection)
    if not (_OURS.issubset(names) if present else not names):
        held = f"it holds {names[0]!a}" if names else f"its user_version is {present}"
        raise ConfigError(
            f"it is somebody else's ({held}) and was left as it is: deadletter shares"
            " no file, name one of its own"
        )
    if present > newest:
        raise ConfigError(
            f"it was written by a newer deadletter (schema {present}, this one"
            f" knows {newest}): upgrade deadletter, or use another file"
        )
    return present


def _sent_at(rest: bytes | None) -> int | None:
    with suppress(MsgspecError, ValueError):  # a damaged letter has no time
        return None if rest is None else micros(sent_of(rest)[0])
    return None


def _position(rest: bytes | None) -> str | None:
    with suppress(MsgspecError, ValueError):
        return None if rest is None else sortable_position(sent_of(rest)[1])
    return None


def _names(connection: sqlite3.Connection) -> list[str]:
    """What the file holds, but for what SQLite keeps there for itself."""
    found = connection.execute("SELECT name FROM sqlite_master ORDER BY name")
    return [name for (name,) in found if not name.startswith("sqlite_")]


def statements(text: str) -> Iterator[str]:
    """The statements of a script; `executescript` would commit before them."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
