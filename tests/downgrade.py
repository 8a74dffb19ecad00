"""SQLite files of earlier versions, made of today's: what each migration added is removed."""

import sqlite3
from typing import Final

_UNDO: Final = {
    24: (
        "ALTER TABLE mailboxes DROP COLUMN marks_key",
        "ALTER TABLE office DROP COLUMN marks_key",
        "ALTER TABLE campaign_outcomes DROP COLUMN marks_key",
        "ALTER TABLE campaign_outcomes DROP COLUMN marks",
    ),
    25: ("ALTER TABLE campaigns DROP COLUMN through", "ALTER TABLE campaign_items DROP COLUMN why"),
    26: (
        "ALTER TABLE lease_queues DROP COLUMN limit_mode",
        "ALTER TABLE items ADD COLUMN max_attempts INTEGER",
        "CREATE TABLE item_origins (source_id TEXT)",
    ),
    27: ("DROP TABLE deaths",),
    28: ("DROP INDEX audit_by_actor", "DROP INDEX audit_by_action"),
    29: (
        "DROP INDEX campaign_items_failed",
        "DROP TABLE campaign_slices",
        "ALTER TABLE campaigns DROP COLUMN approved_by",
        "ALTER TABLE campaigns DROP COLUMN plan",
    ),
    30: ("DROP TABLE workers",),
    31: ("DROP TABLE searches",),
}
"""By number of the migration; a new migration adds its own."""


def downgrade(connection: sqlite3.Connection, version: int) -> None:
    """Give an open file the schema of an earlier version; its rows stay."""
    [present] = connection.execute("PRAGMA user_version").fetchone()
    for number in range(present, version, -1):
        for statement in _UNDO.get(number, ()):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {version}")
