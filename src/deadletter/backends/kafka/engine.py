"""The engine: opened, checked, closed."""

import asyncio
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from deadletter.ports.broker import Broker
from deadletter.ports.burial import Undertaker
from deadletter.ports.features import Durability
from deadletter.ports.ledger import Ledger
from deadletter.ports.letters import LetterStore
from deadletter.ports.postman import Postman
from deadletter.ports.time import Clock

from .address import Address, read_url
from .errors import at_start
from .features import FEATURES
from .mailboxes import KafkaBroker
from .producing import Producing
from .topics import Topics

_OPENING: Final = 10.0  # seconds
_COPIES: Final = 3  # of a topic we make, where there are as many brokers

_CONSUMER: Final[dict[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "queued.min.messages": 1000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 100,  # a partition that is resumed waits for the last fetch
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 300_000,
    "reconnect.backoff.max.ms": 1_000,
}
_PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 1,
    "message.max.bytes": 1_000_000_000,  # what is too large, the topic says
    "batch.size": 900_000,
    "delivery.timeout.ms": 30_000,
    "partitioner": "murmur2_random",  # as the Java client spreads keys
    "reconnect.backoff.max.ms": 1_000,
}


class KafkaEngine:
    """Mailboxes on a Kafka cluster. It keeps no letters and no ledger."""

    def __init__(
        self, address: Address, admin: AdminClient, *, replication: int, clock: Clock
    ) -> None:
        copies = Durability.REPLICATED if replication > 1 else Durability.KILL_SAFE
        self.features = replace(FEATURES, durability=copies)
        client = _client(address)
        strategy = "range" if address.ordering == "key" else "cooperative-sticky"
        consumer = {**_CONSUMER, "partition.assignment.strategy": strategy, **client}
        self._producing = Producing({**_PRODUCER, **client})
        self.mailboxes = KafkaBroker(
            address,
            self.features,
            consumer=consumer,
            topics=Topics(admin, replication=replication),
            producing=self._producing,
            clock=clock,
        )
        self.broker: Broker = self.mailboxes
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = None
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None

    async def close(self) -> None:
        """Leave the groups, saying how things stand, and send what is under way."""
        await self.mailboxes.close()
        await self._producing.close()


async def connect(url: str, *, clock: Clock) -> KafkaEngine:
    """Open what a URL names, once a broker has answered."""
    address = read_url(url)
    admin, brokers = await asyncio.to_thread(_look, address)
    replication = address.replication or min(_COPIES, brokers)
    return KafkaEngine(address, admin, replication=replication, clock=clock)


def _look(address: Address) -> tuple[AdminClient, int]:
    heard: list[KafkaError] = []
    try:
        settings: dict[str, Any] = {**_client(address), "error_cb": heard.append}
        admin = AdminClient(settings)
        try:
            return admin, len(admin.list_topics(timeout=_OPENING).brokers)
        except KafkaException:
            admin.poll(0)  # what it has to say beside "no answer"
            raise
    except KafkaException as error:
        raise at_start(error, address.bootstrap, heard) from error


def _client(address: Address) -> dict[str, Any]:
    # The library would write to standard error whatever it thinks; what matters is
    # raised, so it only speaks in an emergency.
    quiet = {"bootstrap.servers": address.bootstrap, "log_level": 0}
    return {**quiet, "client.id": "deadletter", **address.client}
