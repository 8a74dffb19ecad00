"""Numbered migrations, applied by whoever opens the file first."""

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from deadletter.core.errors import ConfigError

from .connection import patiently

MIGRATIONS: Final = files(__package__) / "migrations"


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


def migrate(connection: sqlite3.Connection) -> int:
    """
    Bring the file up to date and say which version that is.

    Safe however many processes do it at once: one migrates, in one transaction,
    and the others wait for it and find nothing left to do.
    """
    migrations = known()
    newest = migrations[-1][0]
    if patiently(lambda: version(connection)) != newest:
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            _apply(connection, migrations, newest)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return newest


def _apply(
    connection: sqlite3.Connection, migrations: list[tuple[int, str]], newest: int
) -> None:
    present = version(connection)
    if present > newest:
        raise ConfigError(
            f"the file was written by a newer deadletter (schema {present}, this one"
            f" knows {newest}): upgrade deadletter, or use another file"
        )
    for number, text in migrations:
        if number > present:
            for statement in statements(text):
                connection.execute(statement)
    connection.execute(f"PRAGMA user_version={newest}")


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
