"""
A demo of the gateway: events come in, the downstream system fails, a worker dies, and a person
reviews the dead letters and sends them back. It starts its own servers and stops them at the end.

    PYTHONPATH=examples:tests python -m courier.demo [--once]
"""

import asyncio
import os
import shlex
import subprocess
import sys
import time
from typing import Any, Final

import httpx
import msgspec
from pymongo import MongoClient

from deadletter import opened
from deadletter.ports import Released
from servers import MongoDB, Redis
from stage import Process, Stage

from .api import PATH
from .settings import DLQ, MAIN
from .signatures import signed_headers

SECRET: Final = "not much of a secret"
WIDTH: Final = "120"


class Story:
    """The servers and processes of the demo, and the actions of its people."""

    def __init__(self, stage: Stage, redis: type[Redis] = Redis, **environ: str) -> None:
        self.stage = stage
        queue = stage.server(redis).url.replace("redis", "bullmq", 1)
        office = stage.server(MongoDB).url.replace("/?", "/courier?", 1)
        office += "&authSource=admin"
        api, below = stage.port(), stage.port()
        self.downstream = f"http://127.0.0.1:{below}"
        self.gateway = f"http://127.0.0.1:{api}"
        self.environ = {
            "QUEUE_URL": queue,
            "MONGODB_URL": office,
            "COURIER_SECRET": SECRET,
            "API_PORT": str(api),
            "DOWNSTREAM_PORT": str(below),
            "DOWNSTREAM_URL": f"{self.downstream}/events",
            "RETRY_MAX_ATTEMPTS": "3",
            "RETRY_BACKOFF_BASE_MS": "100",
            "WORKER_LEASE_SECONDS": "2",
            "DLQ_URL": queue,  # for `dlq`
            "DLQ_OFFICE": office,
            **environ,
        }
        mongo: MongoClient[dict[str, Any]] = MongoClient(office)
        self.db = mongo["courier"]

    def start(self, module: str) -> Process:
        """Start a part of the system as a process."""
        return self.stage.process(module, env=self.environ)

    def report(self, event_id: str, secret: str = SECRET) -> None:
        """Report an event as a courier does, and print the answer."""
        event = {
            "eventId": event_id,
            "eventType": "shipment.status.updated",
            "source": "courier-x",
            "payload": {"shipmentId": f"shp-{event_id}", "status": "out_for_delivery"},
        }
        body = msgspec.json.encode(event)
        headers = signed_headers(secret, int(time.time()), body)
        answer = httpx.post(
            self.gateway + PATH,
            content=body,
            headers={"content-type": "application/json", **headers},
        )
        said = answer.json().get("detail", "queued")
        self.stage.say(f"POST {event_id}  {answer.status_code} {said}")

    def seen(self, event_id: str) -> list[dict[str, Any]]:
        """Return the deliveries of an event."""
        events: list[dict[str, Any]] = httpx.get(f"{self.downstream}/events").json()
        return [one for one in events if one["eventId"] == event_id]

    def until_seen(self, event_id: str, times: int = 1) -> None:
        self.stage.until(f"{event_id} downstream", lambda: len(self.seen(event_id)) >= times)

    def fail(self, event_id: str, **how: Any) -> None:
        """Let the downstream system fail with an event."""
        fault = {"eventId": event_id, **how}
        httpx.post(f"{self.downstream}/faults", json=fault).raise_for_status()

    def mend(self) -> None:
        httpx.delete(f"{self.downstream}/faults").raise_for_status()

    def run(self, line: str) -> None:
        """Run a command and print its output."""
        self.stage.command(line)
        words = shlex.split(line.replace("dlq ", "python -m deadletter.cli ", 1))
        done = subprocess.run(
            [sys.executable, *words[1:]],
            env={**os.environ, "COLUMNS": WIDTH, **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for row in done.stdout.splitlines():
            if not row.startswith("Office: "):  # the same for all of them
                self.stage.say(row.rstrip())

    def copies(self) -> list[dict[str, Any]]:
        """Return the copies in the dead-letter queue, which stay there."""

        async def peek() -> list[dict[str, Any]]:
            queue = self.environ["QUEUE_URL"]
            async with opened(queue, office="memory://", office_durability="none") as engine:
                source = engine.broker.source(DLQ)
                taken = await source.receive(limit=10, wait=0, lease=10)
                await source.settle([Released(one, charged=False) for one in taken])
                return [msgspec.json.decode(one.message.body) for one in taken]

        return asyncio.run(peek())


def begin(story: Story) -> Process:
    """Start everything, wait until it answers, and return the worker."""
    story.start("courier.downstream")
    story.start("courier.api")
    worker = story.start("courier.worker")
    for url in (f"{story.gateway}/health", f"{story.downstream}/events"):
        story.stage.until(url, lambda url=url: _answers(url))  # type: ignore[misc]
    return worker


def tell(story: Story) -> None:
    """Run the scenes of the demo."""
    stage, worker = story.stage, begin(story)

    stage.chapter("A courier reports, and again because it is not sure")
    story.report("evt-1")
    story.until_seen("evt-1")
    story.report("evt-1")
    story.report("evt-2")
    story.until_seen("evt-2")
    stage.say(f"evt-1 was delivered {len(story.seen('evt-1'))} time")

    stage.chapter("Somebody else reports")
    story.report("evt-1", secret="a guess, and a wrong one")

    stage.chapter("The system downstream is in trouble")
    story.fail("evt-3", status=504, code="DOWNSTREAM_TIMEOUT", message="slow")
    story.fail("evt-4", status=422, message="validation failed: no such status")
    story.report("evt-3")
    story.report("evt-4")
    pending = {"state": "pending"}
    letters = story.db["dead_letter_events"]
    stage.until("letters", lambda: letters.count_documents(pending) == 2)
    for event_id in ("evt-3", "evt-4"):
        stage.say(f"{event_id} is dead; attempts: {len(story.seen(event_id))}")
    story.run("dlq groups")
    stage.say(f"In {DLQ}, for whoever reads it:")
    for copy in sorted(story.copies(), key=lambda one: one["eventId"]):
        code, count = copy["terminalReasonCode"], copy["attemptCount"]
        stage.say(f"{copy['eventId']}  {code}, attemptCount {count}")

    stage.chapter("A worker dies in the middle of a delivery")
    story.fail("evt-5", delayMs=60_000, times=1)
    story.report("evt-5")
    story.until_seen("evt-5")
    worker.kill()
    key = story.db["processed_events"].find_one({"key": "courier-x:evt-5"}) or {}
    stage.say(f"killed; the ledger says of courier-x:evt-5: {key['state']}")
    story.start("courier.worker")
    story.until_seen("evt-5", 2)
    stage.say("another worker has delivered it")

    stage.chapter("It is mended, and what is dead goes back")
    story.mend()
    story.run("python -m courier.replay --limit 5 --where code:VALIDATION --dry-run")
    story.run("python -m courier.replay --limit 5 --wait 20 --reason 'mended'")
    tried = [f"{one['attempt']}: {one['status']}" for one in story.seen("evt-3")]
    stage.say(f"evt-3 downstream, by attempt: {', '.join(tried)}")
    story.run("dlq close is:replayed --reason 'delivered'")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


def stay(story: Story) -> None:
    """Keep everything running until interrupted."""
    stage = story.stage
    stage.chapter("Your turn; Ctrl-C ends it")
    for name, value in story.environ.items():
        stage.say(f"export {name}='{value}'")
    stage.say("dlq groups · dlq list is:closed · python -m courier.replay --limit 1")
    stage.say(f"curl {story.downstream}/events · curl {story.gateway}/health")
    stage.say(f"{MAIN} and {DLQ} are queues of BullMQ: any of its tools shows them")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def main() -> None:
    """Run the demo; on a terminal, keep everything running afterwards."""
    with Stage() as stage:
        story = Story(stage)
        tell(story)
        if "--once" not in sys.argv and sys.stdout.isatty():
            stay(story)


if __name__ == "__main__":
    main()
