"""
The worker, dying at a bad moment: `python dying_worker.py WHEN`.

    copy     the letter is kept, the dead-letter queue does not know of it yet
    ledger   it is copied, the ledger does not know of it yet
    ack      the ledger knows, the queue does not
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from courier.settings import DLQ
from courier.worker import main
from deadletter import Message
from deadletter.brokers.bullmq.engine import BullSink, BullSource
from deadletter.ports import Acked, LedgerClaim, LedgerState, Settlement
from deadletter.stores.mongodb.ledger import MongodbLedger

CODE = 9


def die_before_the_copy() -> None:
    send = BullSink.send

    async def dying(self: BullSink, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        if self.mailbox == DLQ:
            os._exit(CODE)
        await send(self, messages, delay=delay)

    BullSink.send = dying  # type: ignore[assignment, method-assign]


def die_before_the_ledger() -> None:
    async def finish(
        self: MongodbLedger, outcomes: Sequence[tuple[LedgerClaim, LedgerState]], *, ttl: float
    ) -> Any:
        os._exit(CODE)

    MongodbLedger.finish = finish  # type: ignore[method-assign]


def die_before_the_ack() -> None:
    settle = BullSource.settle

    async def dying(self: BullSource, settlements: Sequence[Settlement]) -> Sequence[bool]:
        if any(isinstance(one, Acked) for one in settlements):
            os._exit(CODE)
        return await settle(self, settlements)

    BullSource.settle = dying  # type: ignore[assignment, method-assign]


MOMENTS = {"copy": die_before_the_copy, "ledger": die_before_the_ledger, "ack": die_before_the_ack}

if __name__ == "__main__":
    MOMENTS[sys.argv[1]]()
    sys.exit(main())
