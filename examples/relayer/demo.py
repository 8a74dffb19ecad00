"""
The relayer from end to end: an SQS of its own, the API, both consumers, a chain.

    PYTHONPATH=examples:tests python -m relayer.demo [--once]

At a terminal everything then keeps running until Ctrl-C.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from functools import partial
from typing import Any, Final

import httpx

from relayer.settings import DEAD_QUEUE, QUEUE, read
from servers.sqs import Sqs
from stage import Stage

ALICE: Final = f"0x{'a11ce':0<40}"
BOB: Final = f"0x{'b0b':0<40}"
CAROL: Final = f"0x{'ca401':0<40}"
DAVE: Final = f"0x{'da4e':0<40}"


class Demo:
    """The processes of a relayer, and what a client and a person on call do."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        sqs = stage.server(Sqs)
        ports = {name: stage.port() for name in ("api", "health", "stub")}
        base = f"{sqs.url}/000000000000"
        self.api = f"http://127.0.0.1:{ports['api']}"
        self.stub = f"http://127.0.0.1:{ports['stub']}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": Sqs.access_key,
            "AWS_SECRET_ACCESS_KEY": Sqs.secret_key,
            "AWS_REGION": Sqs.region,
            "SQS_QUEUE_URL": f"{base}/{QUEUE}",
            "SQS_DLQ_URL": f"{base}/{DEAD_QUEUE}",
            "DLQ_POLL_INTERVAL_MS": "200",
            "RETRY_DELAY_MS": "0",
            "REPROCESSING": "on",
            "REPLAY_DELAY_MS": "1000",
            "DATABASE_URL": f"sqlite:///{stage.place}/relayer.db",
            "DLQ_OFFICE": f"sqlite:///{stage.place}/office.db",
            "RELAYER_URL": self.stub,
            "METRICS_INTERVAL_MS": "0",
            "WEBHOOK_TOKEN": "demo",
            "WEBHOOK_URL": f"{self.api}/webhook",
            "PORT": str(ports["api"]),
            "HEALTH_PORT": str(ports["health"]),
            "STUB_PORT": str(ports["stub"]),
        }
        # Looking needs the office alone; sending back needs the queues as well.
        self.environment["DLQ_URL"] = self.environment["DLQ_OFFICE"]
        self.queues = read(self.environment).sqs
        making = stage.process("relayer", "queues", "--create", env=self.environment)
        stage.until("the queues", lambda: making.code is not None)
        stage.process("relayer.stub", env=self.environment)
        stage.process("relayer", "api", env=self.environment)
        stage.process("relayer", "consumer", env=self.environment)
        health = f"http://127.0.0.1:{ports['health']}/health/ready"
        for url in (f"{self.stub}/requests", f"{self.api}/health", health):
            stage.until(url, partial(_answers, url))

    def ask(self, to: str, **fields: Any) -> str:
        """Have a transaction relayed; its id."""
        body = {"to": to, "data": "0xd0", **fields}
        answer = httpx.post(f"{self.api}/relay/direct", json=body)
        told = answer.raise_for_status().json()
        self._stage.command(f"curl $API/relay/direct --json '{_short(fields)}'")
        self._stage.say(f"{answer.status_code} {told['status']}")
        return str(told["transactionId"])

    def until(self, id: str, status: str) -> dict[str, Any]:
        """Wait for a transaction and say how it stands."""

        def there() -> dict[str, Any] | None:
            told: dict[str, Any] = httpx.get(f"{self.api}/relay/status/{id}").json()
            return told if told["status"] == status else None

        told = self._stage.until(f"{id} {status}", there)
        assert told is not None
        why = f": {told['errorCategory']} {told['errorCode']}, “{told['errorMessage']}”"
        self._stage.say(f"{status}{why if told['errorCode'] else ''}")
        return told

    def fail(self, to: str, **fault: Any) -> None:
        """Have the relayer below fail."""
        httpx.post(f"{self.stub}/failures", json={"to": to, **fault}).raise_for_status()

    def requests(self, id: str) -> int:
        """How often the relayer below was asked."""
        return int(httpx.get(f"{self.stub}/requests").json()[id])

    def dlq(self, *words: str) -> None:
        """What a person on call types, and sees."""
        typed = shlex.join(words).replace(f"'{self.queues}'", "$QUEUES")
        self._stage.command(f"dlq {typed}")
        for line in self._said(*words).splitlines():
            self._stage.say(line.rstrip())

    def latest(self) -> str:
        """The id of the letter that died last."""
        (line, *_) = self._said("list", "--json").splitlines()
        return str(json.loads(line)["id"])

    def count(self, query: str) -> int:
        """How many letters a search finds."""
        return len(self._said("list", query, "--json").splitlines())

    def _said(self, *words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "deadletter.cli", *words],
            env={**os.environ, **self.environment, "COLUMNS": "110"},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stdout or ran.stderr


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def _short(fields: dict[str, Any]) -> str:
    wish = ', "retryOnFailure": true' if fields else ""
    return '{"to": "0x…", "data": "0xd0"' + wish + "}"


def tell(stage: Stage, demo: Demo) -> None:
    """The story."""
    stage.chapter("A transaction goes through")
    demo.until(demo.ask(ALICE), "confirmed")

    stage.chapter("What will never work fails at once; the dead-letter queue is not used")
    demo.fail(BOB, status=500, message="execution reverted: paused", times=99)
    bob = demo.ask(BOB)
    demo.until(bob, "failed")
    stage.say(f"asked {demo.requests(bob)} time; dead letters:")
    demo.dlq("list")

    stage.chapter("What may pass is tried three times, dies, and can be looked at")
    demo.fail(CAROL, status=503, message="the pool is busy", times=3)
    carol = demo.ask(CAROL)
    demo.until(carol, "failed")
    stage.say(f"asked {demo.requests(carol)} times")
    demo.dlq("list")

    stage.chapter("The person on call sends it back, and it goes through")
    demo.dlq("show", demo.latest())
    demo.dlq(
        *("replay", "error:RelayError", "--url", demo.queues, "--yes", "--wait", "20"),
        *("--actor", "carla", "--reason", "the pool is back"),
    )
    demo.until(carol, "confirmed")

    stage.chapter("Whoever asks for it with retryOnFailure needs nobody for that")
    demo.fail(DAVE, status=503, message="the pool is busy", times=3)
    dave = demo.ask(DAVE, retryOnFailure=True)
    demo.until(dave, "confirmed")
    stage.say(f"asked {demo.requests(dave)} times")
    stage.until("both letters are done with", lambda: demo.count("is:replayed") == 2)
    demo.dlq("list", "is:replayed")


def main(arguments: list[str]) -> None:
    """Tell the story, and stay if there is somebody to talk to."""
    with Stage() as stage:
        demo = Demo(stage)
        tell(stage, demo)
        if "--once" in arguments or not sys.stdout.isatty():
            return
        stage.chapter("It keeps running: Ctrl-C ends it")
        names = ("DLQ_URL", "DLQ_OFFICE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        for name in names:
            stage.say(f"export {name}={demo.environment[name]}")
        stage.say(f"export API={demo.api}")
        stage.say(f"export QUEUES='{demo.queues}'")
        stage.say(f'curl {demo.api}/relay/direct --json \'{{"to": "{ALICE}"}}\'')
        stage.say(f'curl {demo.stub}/failures --json \'{{"status": 503, "times": 3}}\'')
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
