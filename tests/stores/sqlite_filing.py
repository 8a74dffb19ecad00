"""Filing letters on a connection of one's own."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter
from deadletter.office.transactions.filing import file_letters
from deadletter.office.transactions.operations import run_now
from deadletter.ports.letters import Kept
from deadletter.stores.sqlite.letter_operations import SqliteOperations


def keep(
    connection: sqlite3.Connection, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit
) -> list[Kept]:
    """Keep letters, in the transaction of the connection."""
    return run_now(file_letters(SqliteOperations(connection), letters, now, limit))
