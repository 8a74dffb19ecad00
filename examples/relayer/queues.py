"""
The two queues, which belong to the infrastructure.

The service checks them when it starts, and changes nothing. `python -m relayer queues
--create` makes what is missing.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deadletter import ConfigError, opened
from deadletter.ports import Broker, QueueOptions

from .settings import DEAD_QUEUE, QUEUE, Settings


async def check_queues(broker: Broker, settings: Settings) -> None:
    """Raise ConfigError if the queues are not as the service needs them."""
    found = await differences(broker, settings)
    if found:
        raise ConfigError(
            f"the queues differ from what the service needs: {'; '.join(found)}. Change them"
            " where they are defined, or make missing ones with"
            " `python -m relayer queues --create`."
        )


async def differences(broker: Broker, settings: Settings) -> list[str]:
    """Return how the queues differ from what the service needs, one sentence each."""
    queues = {queue.options.name: queue.options for queue in await broker.queues()}
    found = [f"there is no queue {name}" for name in (QUEUE, DEAD_QUEUE) if name not in queues]
    if QUEUE in queues:
        found += _of_main(queues[QUEUE], settings.profile.policy.max_attempts)
    if DEAD_QUEUE in queues and (dead := queues[DEAD_QUEUE].dead_queue):
        found.append(f"{DEAD_QUEUE} has a redrive policy, to {dead}: it must have none")
    return found


def _of_main(options: QueueOptions, attempts: int) -> list[str]:
    needed = f"to {DEAD_QUEUE} with maxReceiveCount {attempts}"
    if options.dead_queue is None:
        return [f"{QUEUE} has no redrive policy: it needs one {needed}"]
    if (options.dead_queue, options.max_attempts) == (DEAD_QUEUE, attempts):
        return []
    count = options.max_attempts or "1000 (no limit)"
    return [
        (
            f"{QUEUE} has a redrive policy to {options.dead_queue} with maxReceiveCount {count}:"
            f" it needs one {needed}"
        )
    ]


async def make_queues(broker: Broker, settings: Settings) -> None:
    """Make missing queues, and a missing redrive policy; change nothing else."""
    attempts = settings.profile.policy.max_attempts
    main = QueueOptions(name=QUEUE, dead_queue=DEAD_QUEUE, max_attempts=attempts)
    queues = {queue.options.name: queue.options for queue in await broker.queues()}
    if DEAD_QUEUE not in queues:
        await broker.create(QueueOptions(name=DEAD_QUEUE))
    if QUEUE not in queues:
        await broker.create(main)
    elif queues[QUEUE].dead_queue is None:
        await broker.update(main)


@asynccontextmanager
async def opened_broker(url: str, settings: Settings) -> AsyncIterator[Broker]:
    """Open the queues of a URL."""
    async with opened(url, office=settings.office) as engine:
        yield engine.broker
