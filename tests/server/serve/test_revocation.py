"""Two servers of one office: a revocation applies to both within 5 s."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from deadletter.core.letter import By
from deadletter.ports import QueueOptions
from deadletter.wiring.engines import opened
from engines.postgresql_time import a_database
from office.making import make_letters
from server.serve.conftest import Served
from servers.fixtures import needing_postgresql

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]
WITHIN = 5.0  # seconds from the revocation to the end of everything
LETTERS = 2_000
QUEUE = {"queue_name": "orders", "lease_timeout": "1m", "expire_timeout": "10m"}
LEASE = {"queue_name": "orders", "batch_size": 1, "request_timeout": "2m"}


@pytest.fixture(params=["sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/office.db"
    else:
        server = request.getfixturevalue("postgresql_server")
        async with a_database(server.url) as database:
            yield database


class Visit:
    """Requests in progress of a caller, with the times at which they ended."""

    def __init__(self, url: str, token: str) -> None:
        self.ended: dict[str, float] = {}
        self.begun: set[str] = set()
        self.hurries = False  # to read what is still sent
        self.seen: dict[str, Any] = {}
        self._http = httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=120
        )
        self._tasks = [
            asyncio.create_task(self._timed(name, run))
            for name, run in (
                *(("lease", self._lease), ("events", self._events)),
                ("export", self._export),
            )
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def _timed(self, name: str, run: Any) -> None:
        self.seen[name] = await run()
        self.ended[name] = time.monotonic()

    async def _lease(self) -> int:
        self.begun.add("lease")
        wanted = {**LEASE, "client_id": str(id(self))}
        return (await self._http.post("/v1/queue.lease", json=wanted)).status_code

    async def _events(self) -> str:
        async with self._http.stream("GET", "/api/v1/events") as answer:
            async for _ in answer.aiter_bytes():
                self.begun.add("events")
        return "over"

    async def _export(self) -> str:
        try:
            async with self._http.stream("GET", "/api/v1/export") as answer:
                async for _ in answer.aiter_raw(65_536):
                    self.begun.add("export")
                    if not self.hurries:
                        await asyncio.sleep(0.2)  # some minutes for all of it
        except httpx.RemoteProtocolError:
            return "cut short"
        return "whole"


async def until(condition: Callable[[], bool], within: float) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def prepared(url: str) -> None:
    async with opened(url) as engine:
        await engine.broker.create(QueueOptions(name="orders"))
        letters = make_letters(LETTERS, body=b"x" * 20_000)
        for start in range(0, LETTERS, 500):
            await engine.letters.keep(letters[start : start + 500])


async def test_requests_in_progress_of_a_revoked_token_end_within_seconds(
    serve: Serve, url: str
) -> None:
    await prepared(url)
    one = serve(DLQ_URL=url)
    token = await asyncio.to_thread(lambda: one.token)
    other = serve(DLQ_URL=url)
    there = await asyncio.to_thread(lambda: other.url)
    admin = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=one.url, headers=admin, timeout=60) as root:
        assert (await root.post("/v1/queues.create", json=QUEUE)).status_code == 200
        soon = datetime.now(UTC) + timedelta(seconds=25)
        shown, ids = {}, {}
        for name, more in (("bo", {}), ("kim", {"expires_at": soon.isoformat()})):
            body = {"name": name, "role": "operator", **more}
            made = await root.post("/api/v1/tokens", json=body)
            shown[name], ids[name] = made.json()["token"], made.json()["id"]
        bo, kim = (Visit(there, shown[name]) for name in ("bo", "kim"))
        replays = await started(there, shown)
        await until(lambda: len(bo.begun) == len(kim.begun) == 3, 20)

        began = time.monotonic()
        gone = await root.delete(f"/api/v1/tokens/{ids['bo']}")
        assert gone.status_code == 204
        bo.hurries = True
        paused = await paused_after(root, replays["bo"], began)
        await until(lambda: len(bo.ended) == 3, 20)
        took = {name: at - began for name, at in bo.ended.items()} | {"replay": paused}
        assert max(took.values()) < WITHIN, took
        assert bo.seen == {"lease": 401, "events": "over", "export": "cut short"}

        left = (soon - datetime.now(UTC)).total_seconds()
        over = time.monotonic() + left
        await asyncio.sleep(max(left, 0))
        kim.hurries = True
        paused = await paused_after(root, replays["kim"], over)
        await until(lambda: len(kim.ended) == 3, 20)
        late = {name: at - over for name, at in kim.ended.items()} | {"replay": paused}
        assert max(late.values()) < WITHIN, late
        assert kim.seen == {"lease": 401, "events": "over", "export": "cut short"}

        why = {name: await last_reason(root, one) for name, one in replays.items()}
        assert why == {
            "bo": "the token that started it was revoked",
            "kim": "the token that started it has expired",
        }
    await bo.close()
    await kim.close()


async def started(there: str, shown: dict[str, str]) -> dict[str, str]:
    """Start a slow replay of each caller on the other server."""
    found = {}
    for name, token in shown.items():
        bearer = {"authorization": f"Bearer {token}"}
        wish = {"query": "is:pending", "limit": 100, "expect": 100, "rate": 1.0}
        async with httpx.AsyncClient(base_url=there, headers=bearer) as http:
            made = await http.post("/api/v1/replays", json=wish, timeout=60)
            assert made.status_code == 201, made.text
            found[name] = made.json()["replay"]["id"]
    return found


async def last_reason(root: httpx.AsyncClient, name: str) -> str:
    """Return the reason of the last audit entry of a replay."""
    acts = await root.get("/api/v1/audit", params={"target": name})
    reason: str = acts.json()["entries"][-1]["reason"]
    return reason


async def paused_after(root: httpx.AsyncClient, name: str, since: float) -> float:
    """Return the seconds from a time until a replay is paused."""
    while True:
        replay = (await root.get(f"/api/v1/replays/{name}")).json()
        if replay["state"] == "paused":
            return time.monotonic() - since
        assert time.monotonic() - since < 20, replay
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_replay_of_one_who_is_gone_is_not_taken_up_after_a_restart(
    serve: Serve, url: str
) -> None:
    async with opened(url) as engine:
        await engine.broker.create(QueueOptions(name="orders"))
        await engine.letters.keep(make_letters(50))
    first = serve(DLQ_URL=url)
    token = await asyncio.to_thread(lambda: first.token)
    admin = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=first.url, headers=admin, timeout=60) as root:
        body = {"name": "bo", "role": "operator"}
        made = (await root.post("/api/v1/tokens", json=body)).json()
        bearer = {"authorization": f"Bearer {made['token']}"}
        wish = {"query": "is:pending", "expect": 50, "rate": 1.0}
        sent = await root.post("/api/v1/replays", json=wish, headers=bearer)
        name = sent.json()["replay"]["id"]
    first.process.kill()
    await asyncio.to_thread(first.ended)
    async with opened(url) as engine:
        before = (await engine.letters.campaigns())[0].counts
        await engine.access.revoke(made["id"])
        await engine.letters.record("revoke", f"token:{made['id']}", By("test"))

    again = serve(DLQ_URL=url)
    await asyncio.to_thread(lambda: again.url)
    async with httpx.AsyncClient(base_url=again.url, headers=admin, timeout=60) as root:
        # The lease of the one that was killed has to run out first.
        deadline = time.monotonic() + 90
        while (await root.get(f"/api/v1/replays/{name}")).json()["state"] != "paused":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.5)
        after = (await root.get(f"/api/v1/replays/{name}")).json()["counts"]

    assert after["planned"] == before["planned"]
