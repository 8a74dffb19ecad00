"""One mailbox on the server: messages in, deliveries out."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from deadletter.backends._redis.box import Bell, Box
from deadletter.backends._redis.link import Argument, Link
from deadletter.backends._redis.sink import BoxSink
from deadletter.backends._redis.source import BoxSource
from deadletter.backends._redis.times import micros
from deadletter.core.message import Delivery, Message

from .keys import BELL, BELL_ALONE, TO_SEND
from .packing import deliveries, packed
from .registry import Registry
from .scripts import VERBS


class Mailbox(Box):
    """What source and sink of one mailbox share."""

    verbs = VERBS
    keys_to_send = TO_SEND

    def __init__(self, link: Link, registry: Registry, name: str) -> None:
        keys = registry.keys.mailbox(name)
        bells = Bell(keys[BELL]), Bell(keys[BELL_ALONE])
        super().__init__(link, registry, name, keys=keys, bells=bells)

    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """What a claim got, as the server said it."""
        return deliveries(self.name, token, said, first=first)


class RedisSink(BoxSink):
    """The way into one mailbox."""

    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """Whether there are expiries, then every message, each with its own if so."""
        expiring = any(message.expires_at is not None for message in messages)
        args: list[Argument] = [int(expiring)]
        for message in messages:
            args.append(packed(message))
            if expiring:
                expires = message.expires_at
                args.append("" if expires is None else micros(expires))
        return args


class RedisSource(BoxSource):
    """Deliveries of one mailbox."""
