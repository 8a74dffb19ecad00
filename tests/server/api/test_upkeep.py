"""Checks, verify, retention and tests of alerts."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.core.letter import State
from deadletter.office.verify import Verified
from deadletter.server.acting.upkeep import Upkeep, target_name
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from office.making import make_letters
from server.conftest import token

Api = AsyncTestClient[Litestar]


async def ended(api: Api, path: str) -> Any:
    """Wait for the end of a run, and return it."""
    async with asyncio.timeout(10):
        while True:
            found = (await api.get(path)).json()
            run = found.get("run", found)
            if run["state"] not in {"running", "idle"}:
                return found
            await asyncio.sleep(0.01)


async def test_checks_are_those_of_the_doctor(api: Api) -> None:
    found = (await api.get("/api/v1/checks")).json()

    assert {"name": "reachable", "health": "ok"}.items() <= next(
        one for one in found if one["name"] == "reachable"
    ).items()
    assert all(one["text"] for one in found)


async def test_verify_goes_on_in_the_background_and_tells_what_it_found(api: Api) -> None:
    before = (await api.get("/api/v1/verify")).json()
    started = await api.post("/api/v1/verify", json={})
    run = await ended(api, "/api/v1/verify")

    assert before["state"] == "idle"
    assert (started.status_code, started.json()["state"]) == (202, "running")
    assert (run["state"], run["done"], run["total"]) == ("done", 4, 4)
    assert run["found"]["findings"] == []
    assert run["actor"] == "local"


async def test_verify_runs_once_at_a_time(context: ServerContext, api: Api) -> None:
    go_on = asyncio.Event()

    async def slow(**_: object) -> Verified:
        await go_on.wait()
        return Verified(findings=("one is missing",), mailboxes=(), letters=0)

    context.office.verify = slow  # type: ignore[method-assign]
    first = await api.post("/api/v1/verify", json={})
    second = await api.post("/api/v1/verify", json={})
    go_on.set()
    run = await ended(api, "/api/v1/verify")

    assert (first.status_code, second.status_code) == (202, 409)
    assert run["found"]["findings"] == ["one is missing"]


async def test_a_verify_that_fails_says_so_without_secrets(
    context: ServerContext, api: Api
) -> None:
    async def broken(**_: object) -> Verified:
        raise RuntimeError("postgresql://root:hunter2@db failed")

    context.office.verify = broken  # type: ignore[method-assign]
    await api.post("/api/v1/verify", json={})
    run = await ended(api, "/api/v1/verify")

    assert run["state"] == "failed"
    assert "hunter2" not in run["problem"]


async def old_letters(context: ServerContext, count: int) -> None:
    """Close letters that died a year ago."""
    letters = make_letters(
        count, now=context.clock.now(), died=timedelta(days=365), state=State.CLOSED
    )
    await context.store.keep(letters)


async def test_the_retention_is_looked_at_and_run(context: ServerContext, api: Api) -> None:
    await old_letters(context, 3)
    due = (await api.get("/api/v1/retention")).json()
    refused = await api.post("/api/v1/retention", json={"expect": 2})
    started = await api.post("/api/v1/retention", json={"expect": 3, "reason": "full disk"})
    after = await ended(api, "/api/v1/retention")

    assert (due["due"], due["letters"], due["closed"]) == (3, 3, 90.0)
    assert (refused.status_code, started.status_code) == (409, 202)
    assert after["due"] == 0
    assert after["run"]["swept"]["letters"] == 3
    entries = await context.store.audit(limit=100)
    assert ("local", "full disk") in {(one.actor, one.reason) for one in entries}


async def test_a_run_that_would_delete_most_letters_is_refused(
    context: ServerContext, api: Api
) -> None:
    await old_letters(context, 12)
    await api.post("/api/v1/retention", json={})
    refused = await ended(api, "/api/v1/retention")
    await api.post("/api/v1/retention", json={"force": True})
    forced = await ended(api, "/api/v1/retention")

    assert refused["run"]["state"] == "failed"
    assert "more than half" in refused["run"]["problem"]
    assert forced["run"]["swept"]["letters"] == 12


@contextmanager
def receiver(status: int) -> Iterator[tuple[str, list[bytes]]]:
    """Run a receiver of webhooks that answers with this status."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook/secret-path", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hook(url: str) -> AlertTarget:
    return AlertTarget(kind=TargetKind.WEBHOOK, to=url)


async def test_a_test_of_alerts_tells_what_each_target_answered(context: ServerContext) -> None:
    with receiver(204) as (good, bodies), receiver(500) as (bad, _):
        settings = Settings(alerts=Alerts(targets=(hook(good), hook(bad))))
        async with client(replace(context, settings=settings)) as api:
            answer = await api.post("/api/v1/alerts/test", json={"reason": "new"})

    first, second = answer.json()
    assert (first["accepted"], second["accepted"]) == (True, False)
    assert "answered 500" in second["text"]
    assert "secret-path" not in answer.text
    assert b'"kind":"test"' in bodies[0]
    (entry,) = await context.store.audit(limit=10)
    assert (entry.action, entry.reason) == ("test-alerts", "new")
    assert "1 accepted" in entry.detail


async def test_without_targets_there_is_nothing_to_test(api: Api) -> None:
    answer = await api.post("/api/v1/alerts/test", json={})

    assert answer.status_code == 409
    assert "alerts.targets" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (hook("https://user:pw@hooks.example:8443/T1/secret?x=1"), "https://hooks.example:8443"),
        (AlertTarget(kind=TargetKind.EMAIL, to="ops@example.org"), "ops@example.org"),
        (hook("http://[::1"), "an invalid URL"),
    ],
)
def test_targets_are_named_without_secrets(target: AlertTarget, shown: str) -> None:
    assert target_name(target) == shown


async def test_limited_tokens_learn_nothing_of_other_mailboxes(guarded: ServerContext) -> None:
    shown = await token(guarded, Role.ADMIN, "orders")
    async with client(guarded) as api:
        api.headers["authorization"] = f"Bearer {shown}"
        answers = [
            await api.get("/api/v1/checks"),
            await api.get("/api/v1/verify"),
            await api.post("/api/v1/verify", json={}),
            await api.get("/api/v1/retention"),
            await api.post("/api/v1/retention", json={}),
        ]

    assert [one.status_code for one in answers] == [403] * 5


async def test_a_run_ends_with_the_server(context: ServerContext) -> None:
    async def endless(**_: object) -> Verified:
        await asyncio.Event().wait()
        raise AssertionError

    context.office.verify = endless  # type: ignore[method-assign]
    app = build(context)
    async with AsyncTestClient(app, base_url="http://127.0.0.1") as api:
        await api.post("/api/v1/verify", json={})
    upkeep: Upkeep = app.state.upkeep

    assert upkeep.verification.run.state == "failed"


@pytest.fixture
async def api(context: ServerContext) -> AsyncIterator[Api]:
    async with client(context) as found:
        yield found


def client(context: ServerContext) -> Api:
    """Return a client of a new application."""
    return AsyncTestClient(build(context), base_url="http://127.0.0.1")
