"""
The courier gateway under load: signed events from many clients at once.

    python bench/courier.py [--requests 1000] [--clients 100] [--json FILE]

Gateway, worker and the system downstream are processes of their own, on a private
Valkey with BullMQ's queues and a private MongoDB. One event in ten comes twice, one in
twenty fails before it is taken, one in fifty for good. Beside the gateway ("raw"), the
same clients ask the same server for nothing: what the load itself costs.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
from msgspec import Struct

from contest import BENCH
from grounds import EverySecond, Missing
from report import Row, screen, show, write

# First: the example has the name of this script.
sys.path.insert(0, str(BENCH.parent / "examples"))

from courier.api import PATH
from courier.demo import SECRET, Story, begin
from courier.signatures import signed_headers
from stage import Stage

TARGET = 150.0  # milliseconds, of nineteen in twenty: the gateway's own
ACCEPTED_WITHIN = 2.0  # seconds
PACKAGES = ("deadletter", "litestar", "uvicorn", "httptools", "redis", "pymongo")
ENGINE = "bullmq+mongodb"


class Load(Struct, frozen=True):
    """What became of the requests of one run."""

    took: list[float]  # milliseconds
    statuses: list[int]
    seconds: float

    @property
    def per_s(self) -> float:
        return len(self.took) / self.seconds


async def asked(port: int, requests: Sequence[bytes], clients: int) -> Load:
    """
    All requests, by so many clients, each waiting for its answer.

    They are connected before the clock starts: couriers keep their connections.
    """
    left = iter(requests)
    took: list[float] = []
    statuses: list[int] = []
    there = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in left:
            began = time.perf_counter()
            writer.write(request)
            statuses.append(await _answer(reader))
            took.append((time.perf_counter() - began) * 1000)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(*both) for both in there))
    return Load(took, statuses, time.perf_counter() - began)


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


def request(event_id: int) -> bytes:
    """A signed event on the wire."""
    event = {
        "eventId": f"evt_{event_id}",
        "eventType": "shipment.status.updated",
        "source": "courier-x",
        "payload": {"shipmentId": f"shp_{event_id}", "status": "out_for_delivery"},
    }
    body = msgspec.json.encode(event)
    headers = {
        "host": "gateway",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **signed_headers(SECRET, int(time.time()), body),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {PATH} HTTP/1.1\r\n{head}\r\n".encode() + body


def nothing() -> bytes:
    """A request that asks for nothing there is."""
    return b"GET /nothing HTTP/1.1\r\nhost: gateway\r\n\r\n"


def rows_of(who: str, load: Load) -> list[Row]:
    """The rate of a run, and how long answers took."""
    cuts = quantiles(load.took, n=100)
    common: dict[str, Any] = {"who": who, "engine": ENGINE, "unit": "ms"}
    what = "ingestion" if who == "deadletter" else "nothing asked for"
    goal = TARGET if who == "deadletter" else None
    return [
        Row(
            workload=what,
            who=who,
            engine=ENGINE,
            per_s=round(load.per_s, 1),
            n=len(load.took),
            seconds=round(load.seconds, 3),
        ),
        Row(workload=f"{what}, p50", value=round(cuts[49], 1), **common),
        Row(workload=f"{what}, p95", value=round(cuts[94], 1), target=goal, **common),
        Row(workload=f"{what}, p99", value=round(cuts[98], 1), **common),
    ]


def share(what: str, part: int, whole: int, least: float) -> Row:
    """So many of so many, in percent."""
    value = round(100 * part / whole, 2)
    return Row(workload=what, engine=ENGINE, value=value, unit="%", target=least, at_most=False)


def measured(stage: Stage, requests: int, clients: int) -> list[Row]:
    """Everything, on servers of its own."""
    story = Story(stage, EverySecond)
    begin(story)
    port = int(story.environ["API_PORT"])
    events = list(range(requests * 9 // 10))
    well, fragile = _faults(story, events)
    wire = [request(n) for n in events + events[: requests - len(events)]]
    raw = asyncio.run(asked(port, [nothing()] * requests, clients))
    ours = asyncio.run(asked(port, wire, clients))
    accepted = sum(status == 202 for status in ours.statuses)
    prompt = sum(took <= ACCEPTED_WITHIN * 1000 for took in ours.took)
    processed, dead = _ended(story, len(events))
    return [
        *rows_of("raw", raw),
        *rows_of("deadletter", ours),
        share("accepted", accepted, len(wire), 100.0),
        share("answered within 2 s", prompt, len(wire), 99.0),
        share("processed or dead-lettered", processed + dead, len(events), 100.0),
        share("recovered, of those that could", processed - well, fragile, 95.0),
    ]


def _faults(story: Story, events: Sequence[int]) -> tuple[int, int]:
    """Let some fail; how many are well, and how many fail but once."""
    once, ever = events[5::20], events[7::50]
    for n in once:
        story.fail(f"evt_{n}", status=503, times=1)
    for n in ever:
        story.fail(f"evt_{n}", status=422, message="invalid")
    both = set(once) | set(ever)
    return len(events) - len(both), len(set(once) - set(ever))


def _ended(story: Story, events: int) -> tuple[int, int]:
    """How many keys were processed and dead-lettered, once all have ended."""
    ledger = story.db["processed_events"]

    def counts() -> tuple[int, int] | None:
        done = ledger.count_documents({"state": "processed"})
        dead = ledger.count_documents({"state": "dead_lettered"})
        return (done, dead) if done + dead >= events else None

    return story.stage.until("all have ended", counts, within=120) or (0, 0)


def main() -> int:
    """Run it once and show it."""
    parser = argparse.ArgumentParser(description="The courier gateway under load")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--json", type=Path, metavar="FILE")
    told = parser.parse_args()
    try:
        with Stage() as stage:
            rows = measured(stage, told.requests, told.clients)
    except Missing as missing:
        print(missing)
        return 0
    show(screen(), f"Courier gateway, {told.clients} clients", rows)
    if told.json:
        write(told.json, rows, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
