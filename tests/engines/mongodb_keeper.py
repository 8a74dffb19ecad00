"""A process that dies in its turn: `python mongodb_keeper.py URL`."""

import asyncio
import os
import signal
import sys

from deadletter.core.grouping import GroupLimit
from deadletter.office.transactions.filing import file_letters
from deadletter.stores.mongodb.database import Turn
from deadletter.stores.mongodb.letter_operations import MongodbOperations
from deadletter.system import SystemClock
from deadletter.testing.letters_bench import a_letter
from engines.mongodb_rig import opened


async def main(url: str) -> None:
    engine = await opened(url)

    async def work(turn: Turn) -> None:
        await file_letters(
            MongodbOperations(turn), [a_letter(message_id="m-1")], SystemClock().now(), GroupLimit()
        )
        await turn.end()
        os.kill(os.getpid(), signal.SIGKILL)

    await engine._db.write(work)


asyncio.run(main(sys.argv[1]))
