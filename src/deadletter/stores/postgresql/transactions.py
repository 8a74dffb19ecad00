"""Sending within a transaction of the application, on a connection of its own."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.message import Message
from deadletter.ports.transactions import BorrowedConnection

from .database import Database
from .mailboxes import PostgresqlBroker
from .queue import SEND_BORROWED, Mailbox

# The server by when it started, the database and the table by their numbers. From the
# catalogue, which everybody may read, also where there is no such schema.
_TARGET: Final = """
SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()),
    (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()),
    (SELECT t.oid FROM pg_catalog.pg_class t
        JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
        WHERE n.nspname = 'deadletter' AND t.relname = 'messages'))
"""
_SAVE: Final = "SAVEPOINT deadletter_send"
_UNDO: Final = "ROLLBACK TO SAVEPOINT deadletter_send"
_RELEASE: Final = "RELEASE SAVEPOINT deadletter_send"
_TRIES: Final = 3


class PostgresqlTransactions:
    """Sends on connections that lead to the database of the mailboxes."""

    def __init__(self, db: Database, broker: PostgresqlBroker) -> None:
        self._db = db
        self._broker = broker
        self._checked: WeakSet[Any] = WeakSet()  # connections of drivers

    def sink(self, mailbox: str, connection: BorrowedConnection) -> "PostgresqlBorrowedSink":
        """Return the way into a mailbox, within the transaction of a connection."""
        return PostgresqlBorrowedSink(self, self._broker.box(mailbox), connection)

    async def check(self, connection: BorrowedConnection) -> None:
        """Raise ConfigError if a connection leads to another database; it is asked once."""
        driver = await connection.driver()
        if driver in self._checked:
            return
        ((theirs,),) = await connection.fetch(_TARGET)
        ((ours,),) = await self._db.fetch(_TARGET)
        if theirs != ours:
            raise ConfigError(
                "connection= leads to another database than the mailboxes, which are in"
                f" {self._db.address.name}: use a connection to that one, or give the App the"
                " URL of the database that the connection leads to"
            )
        self._checked.add(driver)


class PostgresqlBorrowedSink:
    """The way into one mailbox, within a transaction of the application."""

    def __init__(
        self, transactions: PostgresqlTransactions, box: Mailbox, connection: BorrowedConnection
    ) -> None:
        self.mailbox = box.name
        self._transactions = transactions
        self._box = box
        self._connection = connection

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none, once the transaction commits; receivers are then notified."""
        if not messages:
            return
        await self._transactions.check(self._connection)
        await self._connection.enter()
        for _ in range(_TRIES):
            number = await self._box.id()
            if await self._sent(number, self._box.parts_of(messages, delay)):
                return
            self._box.forget()
        raise Unavailable(
            f"the transaction does not see mailbox {self.mailbox!a} as it is: it was created or"
            " changed after the transaction took its snapshot (REPEATABLE READ or SERIALIZABLE);"
            " roll back, and run the transaction again"
        )

    async def _sent(self, number: int, parts: Sequence[tuple[Any, ...]]) -> bool:
        fetch = self._connection.fetch
        if len(parts) == 1:
            return bool(await fetch(SEND_BORROWED, number, *parts[0]))
        try:
            await fetch(_SAVE)
            answers = [await fetch(SEND_BORROWED, number, *part) for part in parts]
        except BaseException:
            with suppress(Exception):  # the error that is raised says why
                await fetch(_UNDO)
            raise
        await fetch(_RELEASE if all(answers) else _UNDO)
        return all(answers)
