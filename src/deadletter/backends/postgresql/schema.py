"""Numbered migrations, applied by whoever opens the database first."""

from importlib.resources import files
from typing import Final

from deadletter.core.errors import ConfigError

from .pool import Connection

MIGRATIONS: Final = files(__package__) / "migrations"

# Held until the end of the transaction. Any number will do that nobody else uses.
_LOCK: Final = "SELECT pg_advisory_xact_lock(7163384699740971)"
# Asked of the catalogue's own tables: what a session remembers of names may be older
# than the lock it has waited for.
_IS_THERE: Final = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_tables
    WHERE schemaname = 'deadletter' AND tablename = 'migrations')
"""
_VERSION: Final = "SELECT coalesce(max(number), 0) FROM deadletter.migrations"
# With the schema there already, making it may still be forbidden.
_FIND: Final = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'deadletter')
"""
_PLACE: Final = "CREATE SCHEMA deadletter"
_BOOK: Final = """
CREATE TABLE IF NOT EXISTS deadletter.migrations (
    number     integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""
_APPLIED: Final = "INSERT INTO deadletter.migrations (number) VALUES ($1)"


def known() -> list[tuple[int, str]]:
    """Number and text of every migration, in order."""
    found = [
        (int(file.name.partition("_")[0]), file.read_text("utf-8"))
        for file in MIGRATIONS.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


async def migrate(connection: Connection) -> int:
    """
    Bring the database up to date and say which version that is.

    Safe however many processes do it at once: one migrates, in one transaction,
    and the others wait for it and find nothing left to do.
    """
    migrations = known()
    newest = migrations[-1][0]
    if await _version(connection) != newest:
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(_LOCK)
            await _apply(connection, migrations, newest)
    return newest


async def _version(connection: Connection) -> int:
    if not await connection.fetchval(_IS_THERE):
        return 0
    return int(await connection.fetchval(_VERSION))


async def _apply(
    connection: Connection, migrations: list[tuple[int, str]], newest: int
) -> None:
    present = await _version(connection)
    if present > newest:
        raise ConfigError(
            f"the database was used by a newer deadletter (schema {present}, this one"
            f" knows {newest}): upgrade deadletter, or use another database"
        )
    if not await connection.fetchval(_FIND):
        await connection.execute(_PLACE)
    await connection.execute(_BOOK)
    for number, text in migrations:
        if number > present:
            await connection.execute(text)
            await connection.execute(_APPLIED, number)
