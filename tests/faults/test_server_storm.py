"""
The queue server killed with kill -9, again and again, under load.

What was acknowledged is delivered, and completed or dead exactly once; what was
completed never comes back. `make faults` kills 50 times.
"""

import asyncio
import os
import random
import signal
import socket
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engines.postgresql_time import a_database
from servers.fixtures import needing_postgresql

PRODUCERS, CONSUMERS = 2, 4
SEED = 20261116


class Victim:
    """`dlq serve` on one port, started again whenever it was killed."""

    def __init__(self, url: str, log: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._environ = {**os.environ, "DLQ_URL": url, "DLQ_SERVE_ACCESS": "off"}
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.address = f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "deadletter.cli", "serve"),
                *("--quiet", f"--port={self._port}"),
                env=self._environ,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=self.address) as http:
            while True:
                assert self._process.returncode is None, self._log.read_text()
                try:
                    await http.post("/v1/queues.list", json={})
                except httpx.HTTPError:
                    await asyncio.sleep(0.02)
                else:
                    return

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


class Load:
    """Producers and consumers, and what they know for certain."""

    def __init__(self, address: str) -> None:
        self.acknowledged: set[int] = set()
        self.completed: Counter[int] = Counter()  # confirmed
        self.perhaps: set[int] = set()  # the answer to the completion never came
        self.back: list[int] = []  # delivered after it was completed
        self.errors: list[str] = []  # what nobody should be answered
        self.producing = True
        self._numbers = iter(range(10**9))
        self._address = address

    async def call(
        self,
        http: httpx.AsyncClient,
        name: str,
        fine: frozenset[int] = frozenset({454}),
        **fields: Any,
    ) -> Any:
        """What a call was answered; None if it was not, or not applied."""
        try:
            answer = await http.post(f"/v1/{name}", json=fields)
        except httpx.HTTPError:
            await asyncio.sleep(0.02)
            return None
        if answer.status_code == 200:
            return answer.json()
        if answer.status_code not in fine:
            self.errors.append(f"{name}: {answer.status_code} {answer.text}")
        return None

    async def produce(self, seed: int) -> None:
        draw = random.Random(seed)
        async with httpx.AsyncClient(base_url=self._address, timeout=10) as http:
            while self.producing:
                batch = [next(self._numbers) for _ in range(draw.randint(1, 10))]
                items = [{"utf8": str(number)} for number in batch]
                said = await self.call(
                    http, "queue.produce", queue_name="jobs", request_timeout="5s", items=items
                )
                if said is not None:
                    self.acknowledged |= set(batch)
                await asyncio.sleep(0.01)

    async def consume(self, name: str, stop: asyncio.Event) -> None:
        draw = random.Random(name)
        async with httpx.AsyncClient(base_url=self._address, timeout=10) as http:
            while not stop.is_set():
                over = set(self.completed)
                lent = await self.call(
                    http,
                    "queue.lease",
                    queue_name="jobs",
                    client_id=f"{name}-{draw.random()}",
                    batch_size=10,
                    request_timeout="500ms",
                )
                if lent is not None:
                    await self._work(http, lent, over, draw)

    async def _work(
        self, http: httpx.AsyncClient, lent: Any, over: set[int], draw: random.Random
    ) -> None:
        numbers = {item["id"]: number_of(item["bytes"]) for item in lent["items"]}
        self.back += over & set(numbers.values())
        bad = [id_ for id_, number in numbers.items() if number % 10 == 0]
        good = [id_ for id_ in numbers if id_ not in bad]
        if bad:
            given_back = [{"id": id_} for id_ in bad]
            await self._settle(http, "retry", lent, items=given_back)
        if not good or draw.random() < 0.05:  # some are abandoned
            return
        mine = {numbers[id_] for id_ in good}
        self.perhaps |= mine
        said = await self._settle(http, "complete", lent, ids=good, request_timeout="5s")
        if said is not None:
            self.completed.update(mine)

    async def _settle(self, http: httpx.AsyncClient, verb: str, lent: Any, **fields: Any) -> Any:
        where = {"queue_name": "jobs", "partition": lent["partition"]}
        # A lease may have run out while the server was gone: that is said by these.
        fine = frozenset({400, 409, 454})
        return await self.call(http, f"queue.{verb}", fine, **where, **fields)


def number_of(payload: str) -> int:
    return int(b64decode(payload))


@pytest.fixture(params=["sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/items.db"
    else:
        server = request.getfixturevalue("postgresql_server")
        async with a_database(server.url) as database:
            yield database


@pytest.mark.faults
@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_or_doubled_however_often_it_is_killed(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = 50 if request.config.getoption("--long") else 5
    draw = random.Random(SEED)
    victim = Victim(url, tmp_path / "log")
    await victim.start()
    load = Load(victim.address)
    await _create_queues(load)
    stop = asyncio.Event()
    try:
        async with asyncio.timeout(60 + 12 * kills), asyncio.TaskGroup() as group:
            producers = [group.create_task(load.produce(seed)) for seed in range(PRODUCERS)]
            for number in range(CONSUMERS):
                group.create_task(load.consume(f"consumer-{number}", stop))
            for _ in range(kills):
                await asyncio.sleep(draw.uniform(0.05, 0.5))
                await victim.kill()
                await victim.start()
            load.producing = False
            await asyncio.wait(producers)
            await _drained(load)
            stop.set()
        dead = await _dead(load)
    finally:
        await victim.kill()
    _judge(load, dead, kills)


async def _create_queues(load: Load) -> None:
    limits = {"lease_timeout": "2s", "expire_timeout": "1h"}
    async with httpx.AsyncClient(base_url=load._address) as http:
        for fields in (
            {"queue_name": "dead"},
            {"queue_name": "jobs", "dead_queue": "dead", "max_attempts": 6},
        ):
            answer = await http.post("/v1/queues.create", json={**limits, **fields})
            assert answer.status_code == 200, answer.text


async def _drained(load: Load) -> None:
    async with httpx.AsyncClient(base_url=load._address, timeout=10) as http:
        while True:
            answer = await http.post("/v1/queue.stats", json={"queue_name": "jobs"})
            (logical,) = answer.json()["logicalQueues"]
            (there,) = logical["partitions"]
            if not there["total"] + there["scheduled"]:
                return
            await asyncio.sleep(0.1)


async def _dead(load: Load) -> Counter[int]:
    async with httpx.AsyncClient(base_url=load._address, timeout=10) as http:
        asked = {"queue_name": "dead", "limit": 65_536}
        answer = await http.post("/v1/storage/items.list", json=asked)
        return Counter(number_of(item["payload"]) for item in answer.json()["items"])


def _judge(load: Load, dead: Counter[int], kills: int) -> None:
    lost = load.acknowledged - set(dead) - load.perhaps
    completed_twice = [n for n, count in load.completed.items() if count > 1]
    dead_twice = [n for n, count in dead.items() if count > 1]
    print(
        f"{kills} kills, {len(load.acknowledged)} acknowledged,"
        f" {len(load.completed)} completed, {len(dead)} dead,"
        f" {len(load.perhaps - set(load.completed) - set(dead))} perhaps"
    )

    assert lost == set(), "LOST"
    assert completed_twice == [], "COMPLETED TWICE"
    assert dead_twice == [], "DEAD TWICE"
    assert set(load.completed) & set(dead) == set(), "COMPLETED AND DEAD"
    assert load.back == [], "CAME BACK AFTER IT WAS COMPLETED"
    assert load.errors == []
    bad = {number for number in load.acknowledged if number % 10 == 0}
    assert bad <= set(dead), "NOT DEAD ALTHOUGH NEVER COMPLETED"
    assert len(load.acknowledged) > 10 * kills
