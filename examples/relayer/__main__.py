"""
python -m relayer api        takes transactions over HTTP
python -m relayer consumer   works both queues, in one process
python -m relayer queues     checks the queues; with --create, makes missing ones
python -m relayer migrate    brings the transaction table up to date

The consumers can also be named, main and dlq; one without the other is refused.
"""

import asyncio
import os
import sys

import uvicorn

from deadletter import ConfigError

from .api import build
from .consumer import BOTH, consume
from .database import open_database
from .queues import check_queues, differences, make_queues, opened_broker
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
            asyncio.run(_check(settings))
            uvicorn.run(
                build(settings), host=settings.host, port=settings.port, log_level="warning"
            )
            return 0
        case ["consumer", *which] if BOTH.issuperset(which):
            return asyncio.run(consume(settings, frozenset(which) or BOTH))
        case ["queues", *options] if options in ([], ["--create"]):
            return asyncio.run(_queues(settings, create=bool(options)))
        case ["migrate"]:
            asyncio.run(_migrate(settings))
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


async def _check(settings: Settings) -> None:
    async with opened_broker(settings.sqs, settings) as broker:
        await check_queues(broker, settings)


async def _queues(settings: Settings, *, create: bool) -> int:
    """Make missing queues if asked to; say what differs; return the exit code."""
    if create:
        async with opened_broker(settings.sqs_for_creation, settings) as broker:
            await make_queues(broker, settings)
    async with opened_broker(settings.sqs, settings) as broker:
        found = await differences(broker, settings)
    print("\n".join(found) or "the queues are as the service needs them")
    return 1 if found else 0


async def _migrate(settings: Settings) -> None:
    database = await open_database(settings.database)
    try:
        print(f"{await database.migrate()} migrations applied")
    finally:
        await database.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
