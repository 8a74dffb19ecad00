"""Kafka where there is no Java: the mock cluster inside the client library."""

from confluent_kafka import Producer


class KafkaMock:
    """
    A cluster of one broker in this process: real protocol, kept in memory.

    It lies: transactions are accepted and have no effect, nobody is fenced, admin
    calls time out, topics appear when named (four partitions), time is not searchable.
    """

    def __init__(self) -> None:
        wanted = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1}
        self._keeps_it_alive = Producer(wanted)
        brokers = self._keeps_it_alive.list_topics(timeout=10).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self.url = f"kafka://{self.bootstrap}"
