"""An application on RabbitMQ, written with pika, whose messages die."""

import os
from itertools import count
from typing import Any

import pika

KINDS = ("classic", "quorum")
_numbers = count(1)


class Shop:
    """Queues of an application on pika: work, and what its consumer rejected."""

    def __init__(self, url: str, kind: str = "classic") -> None:
        self.url = url
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.name = f"shop{os.getpid()}-{next(_numbers)}"
        self.dead = f"{self.name}.dead"
        self.kind = {"x-queue-type": kind}
        self.declare(self.dead)
        self.declare(self.name, dead=self.dead)

    def declare(self, queue: str, *, dead: str | None = None, **more: Any) -> None:
        arguments = {**self.kind, **more}
        if dead is not None:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        self.channel.queue_declare(queue, durable=True, arguments=arguments)

    def send(self, body: bytes, *, exchange: str = "", key: str = "", **properties: Any) -> None:
        self.channel.basic_publish(
            exchange,
            key or self.name,
            body,
            pika.BasicProperties(delivery_mode=2, **properties),
            mandatory=True,
        )

    def next(self, queue: str) -> Any:
        """The next message: method, properties and body."""
        for _ in range(500):
            found = self.channel.basic_get(queue)
            if found[0] is not None:
                return found
            self.connection.sleep(0.01)
        raise AssertionError(f"nothing came to {queue}")

    def reject(self, number: int = 1, queue: str = "") -> None:
        for _ in range(number):
            method, _, _ = self.next(queue or self.name)
            self.channel.basic_nack(method.delivery_tag, requeue=False)

    def handle(self, queue: str = "") -> list[Any]:
        """Take and acknowledge everything there is."""
        found = []
        while (one := self.channel.basic_get(queue or self.name))[0] is not None:
            self.channel.basic_ack(one[0].delivery_tag)
            found.append(one)
        return found

    def depth(self, queue: str) -> int:
        declared = self.channel.queue_declare(queue, passive=True)
        return int(declared.method.message_count)

    def has(self, queue: str) -> bool:
        channel = self.connection.channel()
        try:
            channel.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        channel.close()
        return True
