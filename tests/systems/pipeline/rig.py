"""A pipeline as processes, with modules that tests control."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import httpx
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from msgspec import Struct

from pipeline.documents import Repository
from pipeline.module_server import Abort, ModuleServer
from pipeline.pipestream_pb2 import (
    DlqMessage,
    PipeDoc,
    PipeStream,
    ProcessDataRequest,
    ProcessDataResponse,
)
from pipeline.topic_records import records
from servers.common import free_port
from stage import Process, Stage

BACKOFF: Final = 0.3  # seconds
PATIENCE: Final = 90.0  # seconds for a step, on a busy machine
T = TypeVar("T")
Act = Callable[[ProcessDataRequest], ProcessDataResponse]


def well(request: ProcessDataRequest) -> ProcessDataResponse:
    """Return the document with one more word."""
    made = PipeDoc()
    made.CopyFrom(request.document)
    made.body += f" {request.stream.current_node_id[:8]}"
    return ProcessDataResponse(success=True, document=made)


def says_no(request: ProcessDataRequest) -> ProcessDataResponse:
    return ProcessDataResponse(error_message="no text in this document")


def away(request: ProcessDataRequest) -> ProcessDataResponse:
    raise Abort("UNAVAILABLE", "restarting")


def wrong(request: ProcessDataRequest) -> ProcessDataResponse:
    raise Abort("INVALID_ARGUMENT", "this is no picture")


def buggy(request: ProcessDataRequest) -> ProcessDataResponse:
    raise KeyError("language")


def late(request: ProcessDataRequest) -> ProcessDataResponse:
    time.sleep(1.0)
    return well(request)


class Call(Struct, frozen=True):
    """One call of a module."""

    at: float
    request: ProcessDataRequest


class Dead(Struct, frozen=True):
    """A record in a dead-letter topic."""

    at: float  # when the broker got it, in seconds
    key: bytes | None
    value: bytes
    message: DlqMessage


class Modules:
    """One server for all modules, with behaviour set per stream and node."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._acts: dict[tuple[str, str], Iterator[Act]] = {}

    def tell(self, stream: str, node: str, *acts: Act) -> None:
        """Set what to do with a stream at a node, call by call; then calls succeed."""
        self._acts[stream, node] = iter(acts)

    def of(self, stream: str) -> list[Call]:
        return [call for call in self.calls if call.request.stream.stream_id == stream]

    def __call__(self, request: ProcessDataRequest) -> ProcessDataResponse:
        self.calls.append(Call(time.time(), request))
        stream = request.stream
        acts = self._acts.get((stream.stream_id, stream.current_node_id), iter(()))
        return next(acts, well)(request)


class Rig:
    """One cluster, with nodes by name."""

    def __init__(self, stage: Stage, kafka: str, nodes: Mapping[str, Any], **client: Any) -> None:
        self.stage = stage
        self.broker = kafka
        self.modules = Modules()
        self.address = ""  # of all modules
        self.cluster = f"prod{uuid4().hex[:6]}"
        self.ids = {name: str(uuid4()) for name in nodes}
        self.documents = Repository(stage.place / "documents")
        self.office = f"sqlite:///{stage.place}/office.db"
        given = {"group": self.cluster, "partitions": 1, **client}
        self.url = f"{kafka}/?{urlencode(given)}"
        self.graph = stage.place / "graph.json"
        self.directory = stage.place / "modules.json"
        self._graph(nodes)
        if "embed" in nodes:
            self._make_embed()
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        health = free_port()
        self._health = httpx.Client(base_url=f"http://127.0.0.1:{health}/health")
        self.metrics = free_port()
        self.environ = {
            "PIPELINE_GRAPH": str(self.graph),
            "PIPELINE_BROKER": self.url,
            "PIPELINE_OFFICE": self.office,
            "PIPELINE_DOCUMENTS": str(stage.place / "documents"),
            "PIPELINE_MODULES": str(self.directory),
            "PIPELINE_METRICS_PORT": str(self.metrics),
            "PIPELINE_HEALTH_PORT": str(health),
        }

    @property
    def bootstrap(self) -> str:
        return self.broker.removeprefix("kafka://")

    def _graph(self, nodes: Mapping[str, Any]) -> None:
        described = []
        for name, node in nodes.items():
            told = {"dlqConfig": {"retryBackoff": f"{BACKOFF}s"}, **node}
            told["nextNodeIds"] = [self.ids[to] for to in node.get("nextNodeIds", ())]
            told.setdefault("moduleId", "usual")
            described.append({"nodeId": self.ids[name], **told})
        graph = {"clusterId": self.cluster, "nodes": described, "maxHops": 3}
        self.graph.write_text(json.dumps(graph).replace("$cluster", self.cluster))

    def _make_embed(self) -> None:
        """Create a topic with several partitions; the service creates the others."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (made,) = admin.create_topics([NewTopic(self.topic("embed"), 3, 1)]).values()
        made.result()

    # Processes.

    def engine(self) -> Process:
        """Start the service; return once all of its nodes run."""
        self.process = process = self.stage.process("pipeline", env=self.environ)

        def ready() -> bool:
            assert process.code is None, process.said()
            return _answers(self._health, "/ready")

        try:
            self.stage.until("the pipeline", ready, 240)
        except TimeoutError as error:
            error.add_note(process.said())
            raise
        return process

    def logged(self, *words: str) -> list[str]:
        """Return the lines of the engine's log that contain all of these."""
        lines = self.process.said().splitlines()
        return [line for line in lines if all(word in line for word in words)]

    def waits(self, node: str, offset: int) -> list[float]:
        """Return the waits that the engine logged for a record, attempt by attempt."""
        lines = self.logged("retried", f"message_id={self.topic(node)}/0/{offset} ")
        return [float(line.partition(" delay=")[2].split()[0]) for line in lines]

    def dlq(self) -> httpx.Client:
        """Start `dlq serve` over the same broker and office."""
        port = free_port()
        self.stage.process(
            "deadletter.cli",
            *("--url", self.url, "--office", self.office),
            *("serve", "--port", str(port), "--access", "off"),
            env={"PATH": os.environ["PATH"], "DLQ_SERVE_GRAPH": str(self.graph)},
        )
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        self.stage.until("dlq serve", lambda: _answers(client, "/health/live"))
        return client

    def close(self) -> None:
        self._health.close()

    def register(self, module: str, address: str | None) -> None:
        """Register the address of a module; None removes it."""
        there = json.loads(self.directory.read_bytes()) if self.directory.exists() else {}
        half = self.directory.with_suffix(".half")
        known = {**there, module: address}
        half.write_text(json.dumps({m: at for m, at in known.items() if at}))
        half.rename(self.directory)

    # Streams and records.

    def topic(self, node: str) -> str:
        return f"{self.cluster}.{self.ids[node]}"

    def dlq_topic(self, node: str) -> str:
        return f"dlq.{self.cluster}.{self.ids[node]}"

    def stream(self, node: str, *acts: Act, **fields: Any) -> PipeStream:
        """Return a stream with a document of its own; `acts` are what the module does."""
        name = uuid4().hex
        document = PipeDoc(doc_id=f"doc-{name}", body="once upon a time")
        stream = PipeStream(
            stream_id=f"s-{name}",
            document_ref=self.documents.put(document),
            current_node_id=self.ids[node],
            **fields,
        )
        self.modules.tell(stream.stream_id, self.ids[node], *acts)
        return stream

    def send(
        self, node: str, stream: PipeStream | bytes, topic: str = "", partition: int = 0
    ) -> int:
        """Send a record to a node, as any producer may; return its offset."""
        body, key = (stream, None) if isinstance(stream, bytes) else _record(stream)
        offsets: list[int] = []

        def delivered(error: Any, record: Any) -> None:
            if error is not None:
                raise KafkaException(error)
            offsets.append(record.offset())

        self._producer.produce(
            topic or self.topic(node), body, key, partition=partition, on_delivery=delivered
        )
        self._producer.flush(20)
        return offsets[0]

    def records(self, topic: str) -> list[Any]:
        """Return the records of a topic."""
        return list(records(self.url, topic))

    def committed(self, node: str) -> int:
        """Return the committed offset of a node."""
        group = {"bootstrap.servers": self.bootstrap, "group.id": self.cluster}
        consumer = Consumer(group)
        try:
            place = TopicPartition(self.topic(node), 0)
            (known,) = consumer.committed([place], timeout=10)
            return int(known.offset)
        finally:
            consumer.close()

    def dead(self, node: str, topic: str = "") -> list[Dead]:
        """Return the messages in the dead-letter topic of a node."""
        return [
            Dead(
                record.timestamp()[1] / 1000,
                record.key(),
                record.value(),
                DlqMessage.FromString(record.value()),
            )
            for record in self.records(topic or self.dlq_topic(node))
        ]

    def wait_for(self, what: str, check: Callable[[], T]) -> T:
        return self.stage.until(what, check, PATIENCE)

    def letters(self, dlq: httpx.Client, node: str, query: str = "") -> Any:
        """Return the letters of a node, newest first."""
        asked = {"query": f"consumer:{self.ids[node]} {query}"}
        answer = dlq.get("/api/v1/letters", params=asked).raise_for_status()
        return answer.json()["heads"]

    def metric(self, name: str) -> float:
        """Return a metric of the engine, by its name and labels."""
        shown = httpx.get(f"http://127.0.0.1:{self.metrics}/metrics").text
        return metric(shown, name)

    def death_of(self, node: str, stream: PipeStream, topic: str = "") -> Dead:
        """Wait for the one message of a stream in the dead-letter topic."""

        def found() -> list[Dead]:
            with suppress(KafkaException):  # a broker may just be coming back
                return [
                    dead
                    for dead in self.dead(node, topic)
                    if dead.message.stream.stream_id == stream.stream_id
                ]
            return []

        (one,) = self.wait_for("a dead letter", found)
        return one

    def calls(self, stream: PipeStream, count: int) -> list[Call]:
        """Wait for a number of calls for a stream."""
        called = self.modules.of
        self.wait_for(f"{count} calls", lambda: len(called(stream.stream_id)) >= count)
        return called(stream.stream_id)


def served(rig: Rig) -> ModuleServer:
    """Return the modules, registered where the pipeline finds them."""
    server = ModuleServer(rig.modules)
    rig.address = server.address
    rig.register("usual", server.address)
    return server


def metric(shown: str, name: str) -> float:
    """Return a metric of a scrape; 0 if it is missing."""
    found = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].rpartition(" ")[2]) if found else 0.0


def _record(stream: PipeStream) -> tuple[bytes, str]:
    return stream.SerializeToString(), stream.stream_id


def _answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).is_success
    except httpx.TransportError:
        return False
