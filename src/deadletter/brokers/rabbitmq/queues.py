"""
The queues that a mailbox is made of.

    orders               messages to process
    orders.suspects      messages that may have killed a worker: processed alone
    orders.delay.1000    messages that wait 1 to 2 seconds; created when first needed

All are quorum queues: durable, and they count deliveries that were neither acked nor
requeued. An existing quorum queue is used as it is.

Messages of a delay queue go back to their mailbox when their time is over. A queue releases
its first message first, so messages with similar delays share a queue. A delay is never
shorter than requested. Behind a longer one in the same queue it may take up to twice as long.
"""

import asyncio
import re
from typing import Any, Final

from pamqp import commands as spec
from pamqp.base import Frame

from deadletter.brokers.amqp.errors import Closed
from deadletter.brokers.amqp.frames import Content
from deadletter.core.errors import ConfigError
from deadletter.core.topology import MAX_ATTEMPTS, check_name

from .connection import Link, translating

SHORTEST_DELAY: Final = 250  # milliseconds; one queue for all shorter delays
LONGEST_DELAY: Final = 2**31  # milliseconds, 24 days; longer delays are split


def delay_bucket(delay: int) -> int:
    """Return the shortest delay of the queue for a delay, in milliseconds."""
    at = SHORTEST_DELAY
    while at * 2 <= min(delay, LONGEST_DELAY):
        at *= 2
    return at


def delay_buckets() -> list[int]:
    """Return the shortest delays of all possible queues."""
    found = [SHORTEST_DELAY]
    while found[-1] * 2 <= LONGEST_DELAY:
        found.append(found[-1] * 2)
    return found


def delay_queue_name(target: str, at: int) -> str:
    """Return the name of a queue that delays messages for `target`."""
    return f"{target}.delay.{at}"


def delay_arguments(target: str) -> dict[str, Any]:
    """
    Return the arguments that declare such a queue.

    Its messages are dead-lettered at least once: a broker that dies meanwhile repeats it.
    """
    return {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": target,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


_LONGEST_NAME: Final = 225  # bytes; AMQP allows 255, and we append suffixes
_QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
# The broker counts lost deliveries itself, and drops a message beyond this limit.
_SUSPECTS: Final = {**_QUORUM, "x-delivery-limit": MAX_ATTEMPTS}
TOO_FEW: Final = 5  # lost deliveries; two happen in one bad night
_UNLIKE: Final = re.compile(
    r"inequivalent arg '([\w-]+)' .*"
    r"current is (?:the value '(.*)' of type '(\w+)'|none|(\w+))$"
)


def check(name: str) -> None:
    """Raise ConfigError for a name that is not valid on RabbitMQ."""
    check_name(name)
    size = len(name.encode("utf-8", "replace"))
    if size > _LONGEST_NAME:
        raise ConfigError(
            f"a queue name on RabbitMQ has at most {_LONGEST_NAME} bytes, this one {size}"
        )
    if name.startswith("amq."):
        raise ConfigError(f"{name!a}: names beginning with amq. are RabbitMQ's own")


def suspects(mailbox: str) -> str:
    """Return the name of the queue of suspects of a mailbox."""
    return f"{mailbox}.suspects"


class Queues:
    """Creates missing queues, once each."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._made: set[str] = set()
        self._limits: dict[str, object] = {}  # of mailboxes that have one

    async def mailbox(self, name: str) -> None:
        """Create a mailbox, or use the existing queue."""
        if name not in self._made:
            await self._adopt(name)

    def in_the_way(self, mailbox: str) -> str | None:
        """Return why a mailbox must not be consumed; None if it can be."""
        limit = self._limits.get(mailbox)
        if not isinstance(limit, int) or not 0 <= limit < TOO_FEW:
            return None
        return (
            f"the queue {mailbox} has x-delivery-limit {limit}: the broker would drop"
            f" or move messages that we still try. Create it again with {TOO_FEW} or more"
            " (or none), or use another queue"
        )

    async def suspects(self, mailbox: str) -> str:
        """Create the queue of suspects of a mailbox, and return its name."""
        name = suspects(mailbox)
        if name not in self._made:
            await self._declare(name, _SUSPECTS)
        return name

    async def delay(self, target: str, at: int) -> str:
        """Create a delay queue of a queue, and return its name."""
        name = delay_queue_name(target, at)
        if name not in self._made:
            await self._declare(name, delay_arguments(target))
        return name

    def forget(self, *names: str) -> None:
        """Forget deleted queues; the next use creates them again."""
        self._made.difference_update(names)

    async def delete(self, mailbox: str) -> int:
        """Delete a mailbox with all its queues; return its number of messages."""
        targets = (mailbox, suspects(mailbox))
        names = [delay_queue_name(t, at) for t in targets for at in delay_buckets()]
        self._made.difference_update(targets, names)
        with translating():
            channel = await self._link.asking()
            answers = await asyncio.gather(
                *(channel.call(spec.Queue.Delete(queue=q)) for q in (*targets, *names))
            )
        deleted = [a for a in answers if isinstance(a, spec.Queue.DeleteOk)]
        return sum(answer.message_count or 0 for answer in deleted)

    async def count(self, name: str) -> int | None:
        """Return the number of messages in a queue; None if it does not exist."""
        try:
            answer = await self._ask(spec.Queue.Declare(queue=name, passive=True))
        except Closed as error:
            if error.code == 404:
                return None
            raise
        assert isinstance(answer, spec.Queue.DeclareOk)
        return answer.message_count

    def delayed(self, mailbox: str) -> list[str]:
        """List the known delay queues of a mailbox."""
        targets = (mailbox, suspects(mailbox))
        names = [delay_queue_name(t, at) for t in targets for at in delay_buckets()]
        return [name for name in names if name in self._made]

    async def _adopt(self, name: str) -> None:
        """Declare a mailbox with the arguments of an existing queue, if there is one."""
        arguments = dict(_QUORUM)
        while True:
            try:
                await self._declare(name, arguments)
            except Closed as error:
                found = _UNLIKE.search(error.text)
                if error.code != 406 or found is None or found[1] in arguments:
                    raise _unfit(name, error) from error
                arguments[found[1]] = _value(found[2], found[3])
            else:
                self._limits[name] = arguments.get("x-delivery-limit")
                return

    async def _declare(self, name: str, arguments: dict[str, Any]) -> None:
        await self._ask(spec.Queue.Declare(queue=name, durable=True, arguments=arguments))
        self._made.add(name)

    async def _ask(self, method: Frame) -> Frame | Content | None:
        channel = await self._link.asking()
        return await channel.call(method)


def _value(text: str | None, kind: str | None) -> object:
    if text is None or kind is None:
        return ""
    return text if kind == "longstr" else int(text) if text.lstrip("-").isdigit() else text


def _unfit(name: str, error: Closed) -> Exception:
    if error.code == 406 and "'x-queue-type'" in error.text:
        return ConfigError(
            f"there is a queue {name} that is not a quorum queue: it does not count"
            " attempts durably. Delete it, or use another name; to take dead letters"
            f" out of it, drain it instead ({error.text})"
        )
    if error.code == 406:
        return ConfigError(
            f"the queue {name} exists with other properties: delete it, or use another"
            f" name ({error.text})"
        )
    return error
