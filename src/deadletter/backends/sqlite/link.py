"""The way to the file: a connection, replaced when it cannot be trusted any more."""

import sqlite3
from contextlib import suppress
from pathlib import Path

from deadletter.core.errors import Unavailable

from .connection import Synchronous, connect, explained, identity, is_fatal
from .schema import version


class Link:
    """
    One connection to the file, for one thread at a time.

    It is opened when it is needed, and again after an error that leaves its
    state unknown, or when the file was replaced under us.
    """

    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous,
        schema: int,
        only_reads: bool = False,
    ) -> None:
        self._path = path
        self._only_reads = only_reads
        self._synchronous = synchronous
        self._schema = schema
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def get(self) -> sqlite3.Connection:
        """The connection, opened if it is not."""
        if self._connection is None:
            self._file = identity(self._path)
            self._connection = connect(
                self._path,
                synchronous=self._synchronous,
                look=self.check,
                only_reads=self._only_reads,
            )
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
        """Refuse to go on when the file we write is not the file that is there."""
        if identity(self._path) != self._file:
            self.drop()
            raise Unavailable(
                f"{self._path} was removed or replaced while in use: put it back"
            )

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
        """Close the connection, whatever state it is in."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
