"""Kafka itself, on Java, without ZooKeeper; its jars come through Maven."""

import socket
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ..common import HOST, INSTALLED, Missing, NotOurs, Server, free_port, program

SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{inner}
advertised.listeners={protocol}://{host}:{port},CONTROLLER://{host}:{inner}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{inner}
log.dirs={directory}/data
log.flush.interval.messages=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"""
# A broker that lives for minutes wants a quick start more than a high speed.
JAVA = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


class Kafka(Server):
    """
    A broker of its own; every record is on disk when acknowledged.

    Topics are not made by merely naming them: create them first.
    """

    name = "kafka"
    ready_within = 60.0
    protocol = "PLAINTEXT"

    @classmethod
    def find(cls) -> dict[str, Path]:
        jars = INSTALLED / "kafka"
        if not (jars / ".ready").exists():
            raise Missing("no Kafka here: run `make services` (needs Java 17 and Maven)")
        return {"jars": jars, "java": program("java")}

    def make_url(self) -> str:
        return f"kafka://{HOST}:{self.port}"

    @property
    def bootstrap(self) -> str:
        """The address as clients of Kafka want it."""
        return self.url.removeprefix("kafka://")

    def prepare(self) -> None:
        settings = self.directory / "server.properties"
        settings.write_text(self.settings())
        name = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # Written as one word: a name may begin with a hyphen, as options do.
        form = ("format", "--standalone", f"--cluster-id={name}", "-c", str(settings))
        self.run(*self._java("kafka.tools.StorageTool", *form))

    def settings(self) -> str:
        """What the broker is told, line by line."""
        return SETTINGS.format(
            host=HOST,
            port=self.port,
            inner=free_port(),
            directory=self.directory,
            protocol=self.protocol,
        )

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.directory / "server.properties"))

    def is_ready(self) -> bool:
        socket.create_connection((HOST, self.port), 2).close()
        admin = AdminClient(
            {"bootstrap.servers": f"{HOST}:{self.port}", "log_level": 0, **self.client_settings()}
        )
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def client_settings(self) -> dict[str, str]:
        """What clients need beside the address."""
        return {}

    def console_tool(self, main: str, *arguments: str) -> list[str]:
        """Return the command of one of Kafka's own tools, by its class."""
        if not self.ours:
            raise NotOurs("the tools come with our own Kafka; this one is from the environment")
        if not list(self.programs["jars"].glob("kafka-tools-[0-9]*.jar")):
            raise Missing("no console tools of Kafka here: run `make services`")
        return self._java(f"org.apache.kafka.tools.{main}", *arguments)

    def _java(self, main: str, *arguments: str) -> list[str]:
        java, jars = self.programs["java"], self.programs["jars"]
        return [str(java), *JAVA, "-cp", f"{jars}/*", main, *arguments]
