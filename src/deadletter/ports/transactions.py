"""Sending within a transaction of the application, over a connection of its own."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from .broker import Sink

Dialect: TypeAlias = Literal["postgresql", "sqlite"]
Rows: TypeAlias = Sequence[Sequence[Any]]


class BorrowedConnection(Protocol):
    """
    A connection of the application, lent for a few statements.

    Statements have the parameters of the engine's own: `$1` in PostgreSQL, `?` in SQLite.
    Errors of the driver are raised as they are. The transaction is never ended here.
    """

    dialect: Dialect

    async def driver(self) -> object:
        """Return the driver's own connection, which leads to one database all its life."""

    async def enter(self) -> None:
        """Make sure that a transaction is open; raise ConfigError if none can be."""

    async def fetch(self, sql: str, *values: Any) -> Rows:
        """Run one statement; return its rows."""


class TransactionalSending(Protocol):
    """Mailboxes that are tables, so that a transaction of the application can write to them."""

    def sink(self, mailbox: str, connection: BorrowedConnection) -> Sink:
        """
        Return the sending side of a mailbox within the transaction of a connection.

        Its messages are in the mailbox if, and only if, that transaction commits.
        """


@runtime_checkable
class JoinsTransactions(Protocol):
    """An engine that sends within transactions of the application."""

    transactions: TransactionalSending
