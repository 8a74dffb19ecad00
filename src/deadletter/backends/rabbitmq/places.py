"""
The queues that a mailbox is made of.

    orders               what is to be worked
    orders.suspects      what a worker died of, maybe: to be run alone
    orders.delay.1000    what waits for 1 to 2 seconds; made when first needed

All are quorum queues: durable, and they count how often a message went out and did
not come back. A mailbox that somebody else has made is taken as it is, if it is one.
"""

import asyncio
import re
from typing import Any, Final

from pamqp import commands as spec
from pamqp.base import Frame

from deadletter.amqp.errors import Closed
from deadletter.amqp.frames import Content
from deadletter.core.errors import ConfigError
from deadletter.core.topology import MAX_ATTEMPTS, check_name

from . import delays
from .link import Link, in_our_words

_LONGEST_NAME: Final = 225  # bytes; AMQP has 255, and ours are put behind it
_QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
# The broker counts by itself how often a message was lost, and drops it beyond this.
_SUSPECTS: Final = {**_QUORUM, "x-delivery-limit": MAX_ATTEMPTS}
TOO_FEW: Final = 5  # lost deliveries; two happen in one bad night
_UNLIKE: Final = re.compile(
    r"inequivalent arg '([\w-]+)' .*"
    r"current is (?:the value '(.*)' of type '(\w+)'|none|(\w+))$"
)


def check(name: str) -> None:
    """Refuse a name that no queue may have."""
    check_name(name)
    size = len(name.encode("utf-8", "replace"))
    if size > _LONGEST_NAME:
        raise ConfigError(
            f"a queue name on RabbitMQ has at most {_LONGEST_NAME} bytes, this one"
            f" {size}"
        )
    if name.startswith("amq."):
        raise ConfigError(f"{name!a}: names beginning with amq. are RabbitMQ's own")


def suspects(mailbox: str) -> str:
    """Where suspects of a mailbox wait."""
    return f"{mailbox}.suspects"


class Places:
    """Makes queues that are missing, once each."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._made: set[str] = set()
        self._limits: dict[str, object] = {}  # of mailboxes that have one

    async def mailbox(self, name: str) -> None:
        """The mailbox itself, as it is or a new one."""
        if name not in self._made:
            await self._adopt(name)

    def in_the_way(self, mailbox: str) -> str | None:
        """Why a mailbox should not be received from; None when it can."""
        limit = self._limits.get(mailbox)
        if not isinstance(limit, int) or not 0 <= limit < TOO_FEW:
            return None
        return (
            f"the queue {mailbox} has x-delivery-limit {limit}: the broker would drop"
            f" or move messages that we still try. Make it anew with {TOO_FEW} or more"
            " (or none), or use another queue"
        )

    async def suspects(self, mailbox: str) -> str:
        """The place for suspects of a mailbox."""
        name = suspects(mailbox)
        if name not in self._made:
            await self._declare(name, _SUSPECTS)
        return name

    async def delay(self, target: str, at: int) -> str:
        """The place to wait at, on the way to a queue."""
        name = delays.queue_name(target, at)
        if name not in self._made:
            await self._declare(name, delays.arguments(target))
        return name

    def forget(self, *names: str) -> None:
        """They were deleted; whoever needs them makes them again."""
        self._made.difference_update(names)

    async def delete(self, mailbox: str) -> int:
        """Delete a mailbox and all that belongs to it; how many messages it had."""
        targets = (mailbox, suspects(mailbox))
        names = [delays.queue_name(t, at) for t in targets for at in delays.buckets()]
        self._made.difference_update(targets, names)
        with in_our_words():
            channel = await self._link.asking()
            answers = await asyncio.gather(
                *(channel.call(spec.Queue.Delete(queue=q)) for q in (*targets, *names))
            )
        deleted = [a for a in answers if isinstance(a, spec.Queue.DeleteOk)]
        return sum(answer.message_count or 0 for answer in deleted)

    async def count(self, name: str) -> int | None:
        """How many messages wait in a queue; None if there is none of that name."""
        try:
            answer = await self._ask(spec.Queue.Declare(queue=name, passive=True))
        except Closed as error:
            if error.code == 404:
                return None
            raise
        assert isinstance(answer, spec.Queue.DeclareOk)
        return answer.message_count

    def delayed(self, mailbox: str) -> list[str]:
        """The delay queues of a mailbox that we know of."""
        targets = (mailbox, suspects(mailbox))
        names = [delays.queue_name(t, at) for t in targets for at in delays.buckets()]
        return [name for name in names if name in self._made]

    async def _adopt(self, name: str) -> None:
        """Declare a mailbox, learning what somebody else has declared it with."""
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
        await self._ask(
            spec.Queue.Declare(queue=name, durable=True, arguments=arguments)
        )
        self._made.add(name)

    async def _ask(self, method: Frame) -> Frame | Content | None:
        channel = await self._link.asking()
        return await channel.call(method)


def _value(text: str | None, kind: str | None) -> object:
    if text is None or kind is None:
        return ""
    return (
        text if kind == "longstr" else int(text) if text.lstrip("-").isdigit() else text
    )


def _unfit(name: str, error: Closed) -> Exception:
    if error.code == 406 and "'x-queue-type'" in error.text:
        return ConfigError(
            f"there is a queue {name} that is not a quorum queue: it does not count"
            " attempts durably. Delete it, or use another name; to take dead letters"
            f" out of it, drain it instead ({error.text})"
        )
    if error.code == 406:
        return ConfigError(
            f"there is a queue {name} that is not like ours: delete it, or use another"
            f" name ({error.text})"
        )
    return error
