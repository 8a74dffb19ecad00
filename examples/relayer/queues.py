"""The two queues, as the infrastructure has them."""

from deadletter import Conflict
from deadletter.ports import Broker, QueueOptions

from .settings import DEAD_QUEUE, QUEUE, Settings


async def make_queues(broker: Broker, settings: Settings) -> None:
    """
    Make the queue with its redrive policy, and the terminal one behind it.

    What exists is brought in line: a queue without its redrive policy would keep
    what a worker died over for ever.
    """
    attempts = settings.profile.policy.max_attempts
    main = QueueOptions(name=QUEUE, dead_queue=DEAD_QUEUE, max_attempts=attempts)
    for options in (QueueOptions(name=DEAD_QUEUE), main):
        try:
            await broker.create(options)
        except Conflict:  # it is there, with other options
            await broker.update(options)
