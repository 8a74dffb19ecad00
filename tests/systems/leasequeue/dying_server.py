"""
`dlq serve` that loses its power in the middle of a move to a dead queue.

    DIE_AFTER=moved       the item stands in the dead queue, its origin is not noted
    DIE_AFTER=noted       both are written, nothing is committed
    DIE_AFTER=committed   it is done, and nobody has been told

The one file here that looks inside: there is no other way to stop between two steps.
"""

import os
import signal
import sys
from typing import Any

from deadletter.backends.postgresql import items as on_postgresql
from deadletter.backends.postgresql import items_moving as moving_postgresql
from deadletter.backends.sqlite import items as on_sqlite
from deadletter.backends.sqlite import items_moving as moving_sqlite
from deadletter.cli import main

STEP = os.environ["DIE_AFTER"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Connection:
    """A connection of PostgreSQL; its process is gone after one statement."""

    def __init__(self, real: Any, last: str | None) -> None:
        self._real = real
        self._last = last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def execute(self, sql: str, *values: Any) -> Any:
        answer = await self._real.execute(sql, *values)
        if sql is self._last:
            die()
        return answer


def prepare() -> None:
    remember, bury = moving_sqlite.remember, moving_postgresql._bury
    steps = {"moved": moving_postgresql._BURY, "noted": moving_postgresql.MOVED}

    def remembering(*given: Any) -> None:
        if STEP == "moved":
            die()
        remember(*given)
        if STEP == "noted":
            die()

    async def burying(connection: Any, *more: Any) -> None:
        await bury(Connection(connection, steps.get(STEP)), *more)

    moving_sqlite.remember = remembering  # type: ignore[attr-defined]
    moving_postgresql._bury = burying
    if STEP == "committed":
        for store in (on_sqlite.SqliteItems, on_postgresql.PostgresqlItems):
            dying(store, "retry", any)
            dying(store, "tend", lambda tended: tended.departed)


def dying(store: Any, verb: str, has_moved: Any) -> None:
    real = getattr(store, verb)

    async def once(self: Any, *args: Any, **given: Any) -> Any:
        answer = await real(self, *args, **given)
        if has_moved(answer):
            die()
        return answer

    setattr(store, verb, once)


if __name__ == "__main__":
    prepare()
    sys.exit(main())
