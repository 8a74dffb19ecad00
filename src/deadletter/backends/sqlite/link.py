"""The way to the file: a connection, replaced when it cannot be trusted any more."""

import ctypes
import os
import sqlite3
from contextlib import suppress
from typing import Final
from weakref import WeakSet

from deadletter.core.errors import StoreLost, Unavailable
from deadletter.core.seals import PLAIN, Sealing

from .connection import Synchronous, connect, explained, is_fatal
from .open_files import FolderState, Identity, OpenFile, folder_state, identity
from .schema import version

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
