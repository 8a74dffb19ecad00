"""
The pipeline at work, on servers of its own that end with it.

A module answers `success=false`, another one is unreachable, a record is malformed. A person
looks at the dead letters and sends them back.

    PYTHONPATH=examples:tests python -m pipeline.demo [--once]
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Producer

from servers import Kafka
from stage import Process, Stage

from .documents import Repository
from .errors import DocumentMissing
from .pipestream_pb2 import DlqMessage, DocumentReference
from .topic_records import records

PARSE: Final = "5d2b8a44-0a86-4c0e-9f0b-6a1f3c2e7a01"
INDEX: Final = "5d2b8a44-0a86-4c0e-9f0b-6a1f3c2e7a02"
QUICK: Final = {"retryBackoff": "0.3s"}
GRAPH: Final = {
    "clusterId": "prod",
    "nodes": [
        {"nodeId": PARSE, "moduleId": "parser", "nextNodeIds": [INDEX], "dlqConfig": QUICK},
        {"nodeId": INDEX, "moduleId": "indexer", "dlqConfig": QUICK},
    ],
}
WORKS: Final = {"parser": "capitals", "indexer": "count"}


class Story:
    """The servers and processes of the story, and its steps."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        kafka = stage.server(Kafka)
        self.bootstrap = kafka.bootstrap
        self.ports = {name: stage.port() for name in WORKS}
        serve, self.metrics = stage.port(), stage.port()
        self.url = f"http://127.0.0.1:{serve}"
        self.documents = Repository(stage.place / "documents")
        self._write("graph.json", GRAPH)
        addresses = {name: f"127.0.0.1:{port}" for name, port in self.ports.items()}
        self._write("modules.json", addresses)
        broker = f"{kafka.url}/?group=pipeline&partitions=1"
        office = f"sqlite:///{stage.place}/office.db"
        self.environ = {
            "PIPELINE_GRAPH": str(stage.place / "graph.json"),
            "PIPELINE_BROKER": broker,
            "PIPELINE_OFFICE": office,
            "PIPELINE_DOCUMENTS": str(stage.place / "documents"),
            "PIPELINE_MODULES": str(stage.place / "modules.json"),
            "PIPELINE_METRICS_PORT": str(self.metrics),
            "PIPELINE_HEALTH_PORT": str(stage.port()),
            "DLQ_URL": broker,  # for `dlq`
            "DLQ_OFFICE": office,
            "DLQ_SERVE_PORT": str(serve),
            "DLQ_SERVE_ACCESS": "off",
        }

    def module(self, name: str) -> Process:
        """Start a module."""
        environ = {"MODULE_PORT": str(self.ports[name]), "MODULE_MOOD": str(self.mood(name))}
        process = self.stage.process("pipeline.module_server", WORKS[name], env=environ)
        self.stage.until(name, lambda: "listening" in process.said())
        return process

    def mood(self, name: str) -> Path:
        return self.stage.place / f"{name}.mood"

    def begin(self) -> None:
        """Start the pipeline and `dlq serve`."""
        self.stage.process("pipeline", env=self.environ)
        self.stage.process("deadletter.cli", "serve", env=self.environ)
        health = self.environ["PIPELINE_HEALTH_PORT"]
        ready = f"http://127.0.0.1:{health}/health/ready"
        self.stage.until("the pipeline", lambda: _answers(ready))
        live = f"{self.url}/health/live"
        self.stage.until("dlq serve", lambda: _answers(live))

    def submit(self, *texts: str) -> list[str]:
        """Submit texts, as a person would; return their ids."""
        quoted = " ".join(map(shlex.quote, texts))
        return self.run(f"python -m pipeline.submission {PARSE} {quoted}")

    def indexed(self, ids: list[str]) -> None:
        """Wait until the last node has made its documents, and show them."""
        for one in ids:
            made = DocumentReference(doc_id=one, source_node_id=INDEX)
            body = self.stage.until(one, lambda made=made: self._body(made))  # type: ignore[misc]
            self.stage.say(f"indexed: {body}")

    def _body(self, reference: DocumentReference) -> str:
        try:
            return self.documents.get(reference).body
        except DocumentMissing:
            return ""

    def run(self, line: str) -> list[str]:
        """Run a command; show its output and return it."""
        self.stage.command(line)
        words = shlex.split(line.replace("dlq ", "python -m deadletter.cli ", 1))
        done = subprocess.run(
            [sys.executable, *words[1:]],
            env={
                **os.environ,
                "COLUMNS": "110",
                "PYTHONPATH": str(Path(__file__).parent.parent),
                **self.environ,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stdout)
        rows = done.stdout.splitlines()  # the office is the same for all commands
        said = [row.rstrip() for row in rows if not row.startswith("Office: ")]
        for row in said:
            self.stage.say(row)
        return said

    def ask(self, node_id: str, **request: Any) -> Any:
        """Request a replay over HTTP."""
        path, body = f"/admin/dlq/{node_id}/replay", json.dumps(request)
        self.stage.command(f"curl --json '{body}' $DLQ{path}")
        answer = httpx.post(f"{self.url}{path}", json=request, timeout=20)
        return answer.raise_for_status().json()

    def dead(self, node_id: str) -> list[DlqMessage]:
        """Return the messages in the dead-letter topic of a node."""
        topic = f"dlq.prod.{node_id}"
        return [
            DlqMessage.FromString(record.value() or b"")
            for record in records(self.environ["PIPELINE_BROKER"], topic)
        ]

    def until_dead(self, node_id: str, count: int) -> None:
        self.stage.until("dead letters", lambda: len(self.dead(node_id)) == count)

    def show_dead(self, node_id: str) -> None:
        """Show the messages in the dead-letter topic of a node."""
        self.stage.say(f"in dlq.prod.{node_id}:")
        for dead in self.dead(node_id):
            text = dead.error_message.partition(" at ")[0]
            self.stage.say(f"{dead.error_type}, retry_count {dead.retry_count}: {text}")

    def numbers(self, *names: str) -> None:
        """Show some of the metrics."""
        office = httpx.get(f"{self.url}/metrics", timeout=20).text
        engine = httpx.get(f"http://127.0.0.1:{self.metrics}/metrics").text
        for row in f"{engine}\n{office}".splitlines():
            if row.startswith(names):
                self.stage.say(row)

    def _write(self, name: str, content: object) -> None:
        (self.stage.place / name).write_text(json.dumps(content))


def tell(story: Story) -> None:
    """Run the story, chapter by chapter."""
    stage = story.stage
    story.module("parser")
    indexer = story.module("indexer")
    story.begin()

    stage.chapter("A text goes through two nodes")
    story.indexed(story.submit("it was a dark night"))

    stage.chapter("The parser says no: no dead letter, the text goes on as it was")
    story.mood("parser").write_text("refuse")
    story.indexed(story.submit("it was a bright day"))
    story.mood("parser").unlink()
    story.run("dlq list")

    stage.chapter("The indexer is away, and somebody sends rubbish")
    indexer.stop()
    waiting = story.submit("one text", "another text")
    story.until_dead(INDEX, 2)
    rubbish = Producer({"bootstrap.servers": story.bootstrap, "log_level": 0})
    rubbish.produce(f"prod.{INDEX}", b"\xff\xff what is this")
    rubbish.flush()
    story.until_dead(INDEX, 3)
    story.show_dead(INDEX)
    story.run("dlq groups")

    stage.chapter("It is back: what it should have done goes back, the rubbish stays")
    story.module("indexer")
    only = {"filter": "code:MODULE_UNAVAILABLE", "reason": "the indexer is back"}
    plan = story.ask(INDEX, **only, dry_run=True)
    stage.say(f"{plan['sendable']} streams would go to {_topics(plan)}")
    plan = story.ask(INDEX, **only, limit=2)
    story.indexed(waiting)
    story.run(f"dlq replay status {plan['replay']['id']}")
    story.run("dlq list is:pending")

    stage.chapter("What Prometheus sees")
    story.numbers("pipestream_dlq_messages_total", "pipestream_dlq_depth")


def stay(story: Story) -> None:
    """Leave everything running for a look around."""
    stage = story.stage
    stage.chapter("Your turn; Ctrl-C ends it")
    stage.say("export PYTHONPATH=examples")
    for name, value in story.environ.items():
        stage.say(f"export {name}='{value}'")
    stage.say(f"export DLQ={story.url}")
    moods = story.mood("parser")
    stage.say(f"echo refuse > {moods}    # or slow, crash, raise; rm: as it was")
    stage.say(f"python -m pipeline.submission {PARSE} 'a text of yours'")
    stage.say("dlq groups · dlq list · dlq show ID · dlq replay is:pending --wait 20")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def _topics(plan: Any) -> str:
    return ", ".join(plan["plan"]["targets"])


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def main() -> None:
    """Tell the story; on a terminal, stay."""
    with Stage() as stage:
        story = Story(stage)
        tell(story)
        if "--once" not in sys.argv and sys.stdout.isatty():
            stay(story)


if __name__ == "__main__":
    main()
