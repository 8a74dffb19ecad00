"""The way to the file: a connection, replaced when it cannot be trusted any more."""

import ctypes
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Final
from weakref import WeakSet

from msgspec import MsgspecError

from deadletter.core.errors import ConfigError, StoreLost, Unavailable
from deadletter.core.packing import sent_of
from deadletter.core.replay_rules import sortable_position
from deadletter.core.seals import PLAIN, Sealing

from .connection import (
    FolderState,
    Identity,
    OpenFile,
    Synchronous,
    connect,
    explained,
    folder_state,
    identity,
    is_fatal,
    patiently,
)
from .sql import micros
from .text_index import lacks, set_up

# Numbered migrations, applied by whoever opens the file first.

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


_links: Final[WeakSet["Link"]] = WeakSet()


class Link:
    """
    One connection to the file, for one thread at a time.

    It is opened when it is needed, and again after an error that leaves its state
    unknown; but never to another file than the one that the engine was opened with.
    """

    def __init__(
        self,
        file: OpenFile,
        *,
        synchronous: Synchronous,
        schema: int,
        only_reads: bool = False,
        sealing: Sealing = PLAIN,
    ) -> None:
        self._file = file
        self._path = file.path
        self._only_reads = only_reads
        self._synchronous = synchronous
        self._schema = schema
        self._sealing = sealing
        self._connection: sqlite3.Connection | None = None
        self._beside: dict[str, Identity | None] = {}  # the -wal and -shm file
        # Nothing was added, removed or replaced in the folder since all was well. The
        # file that a symbolic link points to is in another folder.
        self._folder = None if file.path.is_symlink() else str(file.path.parent)
        self._unchanged: FolderState | None = None
        _links.add(self)

    def get(self) -> sqlite3.Connection:
        """The connection, opened if it is not."""
        if self._connection is None:
            self._file.check()  # before anything is written to a stranger's file
            self._connection = connect(
                self._path,
                synchronous=self._synchronous,
                look=self.check,
                only_reads=self._only_reads,
                sealing=self._sealing,
            )
            names = (f"{self._path}-wal", f"{self._path}-shm")
            self._beside = {name: identity(name) for name in names}
            self._unchanged = None
            self._file.check()
        return self._connection

    def check(self, connection: sqlite3.Connection) -> None:
        """Refuse to go on when another version of us has migrated the file."""
        present = version(connection)
        if present != self._schema:
            raise Unavailable(
                f"{self._path} has schema {present} now, this process knows"
                f" {self._schema}: another version changed it, restart this one"
            )

    def check_file(self) -> None:
        """Refuse to go on when the files we use are not the files that are there."""
        state = None if self._folder is None else folder_state(self._folder)
        if state is not None and state == self._unchanged:
            return  # one look instead of three
        problem = self.problem()
        if problem is not None:
            raise StoreLost(problem)
        self._unchanged = state

    def problem(self) -> str | None:
        """Return which of the files was removed or replaced; None if none was."""
        problem = self._file.problem()
        if problem is None and self._connection is not None:
            for name, before in self._beside.items():
                if identity(name) != before:
                    return (
                        f"{name} was removed or replaced while this process used it:"
                        " stop every process that uses the database, then restart"
                    )
        return problem

    def failed(self, error: BaseException) -> BaseException:
        """Undo what was begun after an error, and say it in our words."""
        if is_fatal(error):
            self.drop()
        elif self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self.drop()
        return self.told(error)

    def told(self, error: BaseException) -> BaseException:
        """An error in our words, if it is one of SQLite's."""
        if not isinstance(error, sqlite3.Error):
            return error
        ours = explained(error, self._path)
        ours.__cause__ = error
        return ours

    def drop(self) -> None:
        """
        Close the connection, whatever state it is in.

        If the database is missing, its log stays: SQLite would remove it.
        """
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._file.is_missing():
            with suppress(sqlite3.Error):
                connection.rollback()
            _leave_open(connection)
            return
        with suppress(sqlite3.Error):
            connection.close()

    def abandon(self) -> None:
        """Forget the connection without closing it, in a forked child."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _leave_open(connection)


def _leave_open(connection: sqlite3.Connection) -> None:
    """Keep a connection from being closed for as long as this process lives."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _abandon_all() -> None:
    # Closing rolls back, which changes the memory that is shared with the parent.
    for link in list(_links):
        link.abandon()


os.register_at_fork(after_in_child=_abandon_all)
