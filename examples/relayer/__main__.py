"""
python -m relayer api        takes transactions over HTTP
python -m relayer consumer   works both queues, in one process
python -m relayer queues     makes the queues, with the redrive policy
python -m relayer migrate    brings the transaction table up to date

The consumers can also be named, main and dlq; one without the other is refused.
"""

import asyncio
import os
import sys

import uvicorn

from deadletter import ConfigError, opened

from .api import build
from .consumer import BOTH, consume
from .database import open_database
from .queues import make_queues
from .settings import Settings, read


def main(arguments: list[str]) -> int:
    """Do what is asked for; the exit code."""
    try:
        return _run(arguments, read(os.environ))
    except ConfigError as error:
        print(f"relayer: {error}", file=sys.stderr)
        return 2


def _run(arguments: list[str], settings: Settings) -> int:
    match arguments:
        case ["api"]:
            uvicorn.run(
                build(settings), host=settings.host, port=settings.port, log_level="warning"
            )
            return 0
        case ["consumer", *which] if BOTH.issuperset(which):
            return asyncio.run(consume(settings, frozenset(which) or BOTH))
        case ["queues"]:
            asyncio.run(_queues(settings))
            return 0
        case ["migrate"]:
            asyncio.run(_migrate(settings))
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


async def _queues(settings: Settings) -> None:
    async with opened(settings.sqs, office=settings.office) as engine:
        await make_queues(engine.broker, settings)


async def _migrate(settings: Settings) -> None:
    database = await open_database(settings.database)
    try:
        print(f"{await database.migrate()} migrations applied")
    finally:
        await database.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
