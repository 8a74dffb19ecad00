"""
`dlq serve` that loses its power in the middle of a move to a dead queue.

    DIE_AFTER=moved       the item is in the dead queue, other changes are not made yet
    DIE_AFTER=written     all is written, nothing is committed
    DIE_AFTER=committed   it is done, and nobody has been told

The one file here that looks inside: there is no other way to stop between two steps.
"""

import os
import signal
import sys
from typing import Any

from deadletter.cli import main
from deadletter.stores.postgresql.items import PostgresqlItems
from deadletter.stores.postgresql.items_operations import PostgresqlItemOperations
from deadletter.stores.sqlite.items import SqliteItems
from deadletter.stores.sqlite.items_operations import SqliteItemOperations

STEP = os.environ["DIE_AFTER"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prepare() -> None:
    for operations in (SqliteItemOperations, PostgresqlItemOperations):
        if STEP == "moved":
            dying(operations, "move_items", lambda _: True)
        elif STEP == "written":  # the last operation of a move: nothing is deleted after it
            dying(operations, "notify", lambda _: True)
    if STEP == "committed":
        for store in (SqliteItems, PostgresqlItems):
            dying(store, "retry", any)
            dying(store, "sweep", lambda swept: swept.dead)


def dying(place: Any, verb: str, has_moved: Any) -> None:
    real = getattr(place, verb)

    async def once(self: Any, *args: Any, **given: Any) -> Any:
        answer = await real(self, *args, **given)
        if has_moved(answer):
            die()
        return answer

    setattr(place, verb, once)


if __name__ == "__main__":
    prepare()
    sys.exit(main())
