"""Sending within a transaction of the application, on a connection of its own."""

from collections.abc import Sequence
from contextlib import suppress
from os import fsdecode
from typing import Final

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.message import Message
from deadletter.core.seals import leaving
from deadletter.core.topology import check_name
from deadletter.ports.transactions import BorrowedConnection

from .engine import Database
from .mailboxes import MAKE
from .queue import COUNT_SENT, insertions
from .sql import MessageRow, micros, rows_of, seconds

_FILES: Final = "PRAGMA database_list"
_SCHEMA: Final = "PRAGMA main.user_version"
_SAVE: Final = "SAVEPOINT deadletter_send"
_UNDO: Final = "ROLLBACK TO deadletter_send"
_RELEASE: Final = "RELEASE deadletter_send"


class SqliteTransactions:
    """Sends on connections to the file of the mailboxes."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def sink(self, mailbox: str, connection: BorrowedConnection) -> "SqliteBorrowedSink":
        """Return the way into a mailbox, within the transaction of a connection."""
        check_name(mailbox)
        return SqliteBorrowedSink(self._db, mailbox, connection)


class SqliteBorrowedSink:
    """
    The way into one mailbox, within a transaction of the application.

    Everything is done on the connection of the application, the mailbox made as well: our
    own would wait for its transaction. Nothing is remembered, since it may be rolled back.
    """

    def __init__(self, db: Database, mailbox: str, connection: BorrowedConnection) -> None:
        self.mailbox = mailbox
        self._db = db
        self._connection = connection

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none, once the transaction commits; receivers then look at the file."""
        if not messages:
            return
        rows, fetch = rows_of(messages), self._connection.fetch
        await self._check()
        await self._connection.enter()
        try:
            await fetch(_SAVE)
            await self._send(rows, messages, max(0, seconds(delay)))
        except BaseException:
            with suppress(Exception):  # the error that is raised says why
                await fetch(_UNDO)
                await fetch(_RELEASE)
            raise
        await fetch(_RELEASE)

    async def _send(
        self, rows: Sequence[MessageRow], messages: Sequence[Message], wait: int
    ) -> None:
        sealing, fetch = self._db.sealing, self._connection.fetch
        ((box, key_id),) = await fetch(MAKE, self.mailbox, sealing.key_id)
        # From here on nobody else writes, and so nobody migrates the file.
        await self._check_schema()
        total = leaving("sent", len(rows), sealing.marks(key_id).messages(messages))
        ((expire_after, _),) = await fetch(COUNT_SENT, len(rows), total, box)
        now = micros(self._db.clock.now())
        for sql, values in insertions(box, rows, expire_after, now, wait):
            await fetch(sql, *values)

    async def _check(self) -> None:
        """Raise ConfigError if the connection leads to another file."""
        found = await self._connection.fetch(_FILES)
        # The application may have its texts returned as bytes.
        files = {fsdecode(name): fsdecode(path) for _, name, path in found}
        if self._db.is_same(files["main"]):
            return
        others = [name for name, path in files.items() if self._db.is_same(path)]
        if others:
            raise ConfigError(
                f"connection= has the file of the mailboxes attached as {others[0]!a}, and a"
                " commit over several files is not atomic: connect to"
                f" {str(self._db.path)!a} itself, and keep your tables there"
            )
        raise ConfigError(
            f"connection= leads to {files['main'] or 'a database in memory'!a}, but the"
            f" mailboxes are in {str(self._db.path)!a}: use a connection to that file, or give"
            " the App the URL of yours"
        )

    async def _check_schema(self) -> None:
        ((present,),) = await self._connection.fetch(_SCHEMA)
        if present != self._db.schema:
            raise Unavailable(
                f"{self._db.path} has schema {present} now, but this process knows"
                f" {self._db.schema}: another version has migrated it, restart this process"
            )
