"""Health over HTTP: status for probes, reasons for people."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec import structs

from deadletter.core.campaign import Campaign
from deadletter.core.errors import Unavailable
from deadletter.core.letter import State
from deadletter.ports import Move
from deadletter.runtime.health import Complaint
from deadletter.server import health
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.server.health import Office, Status, judge
from office.making import BY, NOW, make_letter
from output.full_pipe import bounded_output

Client = AsyncTestClient[Litestar]


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_AGE", 0.0)


@pytest.fixture
async def strangers(guarded: ServerContext) -> AsyncIterator[Client]:
    """A client without a token, for a server with access on."""
    async with AsyncTestClient(build(guarded), base_url="http://127.0.0.1") as client:
        yield client


async def fill(context: ServerContext, count: int, source: str = "orders") -> None:
    letters = [make_letter(n, source=source) for n in range(count)]
    await context.store.keep(letters)


async def test_an_empty_office_passes(api: Client) -> None:
    answer = await api.get("/health")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/health+json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert (body["status"], body["dlq"]) == ("pass", None)
    [office] = body["checks"]["office:deadLetters"]
    assert office["status"] == "pass"
    assert office["componentType"] == "datastore"


@pytest.mark.parametrize(
    ("depth", "status", "word"), [(99, "pass", "healthy"), (100, "warn", "degraded")]
)
async def test_100_open_letters_are_too_many_r3_85_to_r3_87(
    api: Client, context: ServerContext, depth: int, status: str, word: str
) -> None:
    await fill(context, depth)
    await fill(context, 3, "mails")

    answer = await api.get("/health")

    body = answer.json()
    assert answer.status_code == 200  # it works: somebody should look
    assert body["status"] == status
    assert body["dlq"] == {"name": "orders", "depth": depth, "threshold": 100, "status": word}
    first, second = body["checks"]["mailbox:openLetters"]
    assert (first["componentId"], first["observedValue"]) == ("orders", depth)
    assert (second["componentId"], second["status"]) == ("mails", "pass")


async def test_how_many_are_too_many_can_be_set(context: ServerContext) -> None:
    settings = structs.replace(context.settings, depth_threshold=3)
    changed = structs.replace(context, settings=settings)
    await fill(context, 3)

    async with AsyncTestClient(build(changed), base_url="http://127.0.0.1") as client:
        body = (await client.get("/health")).json()

    assert body["status"] == "warn"
    assert (body["dlq"]["threshold"], body["dlq"]["status"]) == (3, "degraded")
    [check] = body["checks"]["mailbox:openLetters"]
    assert check["output"] == "3 or more open letters"


async def test_letters_that_need_nobody_do_not_count(api: Client, context: ServerContext) -> None:
    await fill(context, 100)
    ids = tuple(make_letter(n).id for n in range(50))
    await context.store.move(Move(ids=ids, old=frozenset({State.PENDING}), new=State.CLOSED), BY)

    assert (await api.get("/health")).json()["dlq"]["depth"] == 50


async def test_an_office_that_does_not_answer_fails_and_is_not_ready(
    api: Client, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> Any:
        raise Unavailable("postgresql://admin:hush@10.0.0.1/ is gone")

    with monkeypatch.context() as patched:
        patched.setattr(context.store, "counts", away)
        answer, ready = await api.get("/health"), await api.get("/health/ready")
        live = await api.get("/health/live")
    later = await api.get("/health/ready")

    assert (answer.status_code, ready.status_code) == (503, 503)
    assert answer.json()["status"] == "fail"
    assert "hush" not in answer.text
    assert "Unavailable" in answer.text
    assert live.status_code == 200  # starting it again would not help
    assert later.status_code == 200


async def test_an_office_that_hangs_fails_as_well(
    api: Client, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs() -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(health, "PATIENCE", 0.05)
    monkeypatch.setattr(context.store, "counts", hangs)

    answer = await api.get("/health/ready")

    assert (answer.status_code, answer.json()) == (503, {"status": "fail"})


async def test_finding_out_writes_nothing(api: Client, context: ServerContext) -> None:
    await fill(context, 1)
    before = await context.store.audit(), await context.store.counts()

    for path in ("/health", "/health/live", "/health/ready"):
        assert (await api.get(path)).status_code == 200

    assert (await context.store.audit(), await context.store.counts()) == before


async def test_a_loop_that_stands_still_is_no_reason_to_live_less(context: ServerContext) -> None:
    stuck = structs.replace(
        context, complaints=lambda: [Complaint("sweep", "no sign of life for 400 s")]
    )
    async with AsyncTestClient(build(stuck), base_url="http://127.0.0.1") as client:
        live, ready = (await client.get("/health/live"), await client.get("/health/ready"))
        answer = await client.get("/health")

    assert (live.status_code, ready.status_code) == (200, 503)
    [loop] = answer.json()["checks"]["loop:running"]
    assert (loop["componentId"], loop["status"]) == ("sweep", "fail")
    assert "400 s" in loop["output"]


async def test_strangers_learn_how_it_is_and_no_names_s26(
    strangers: Client, guarded: ServerContext
) -> None:
    await fill(guarded, 120, "secret-project")

    answer = await strangers.get("/health")

    assert answer.status_code == 200
    assert answer.json()["status"] == "warn"
    assert answer.json()["dlq"]["depth"] == 120
    assert "secret-project" not in answer.text
    assert (await strangers.get("/health/live")).json() == {"status": "pass"}


async def test_many_who_ask_at_once_cost_one_look(
    api: Client, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_AGE", 60.0)
    looks = 0
    counts = context.store.counts

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        return await counts()

    monkeypatch.setattr(context.store, "counts", counted)

    await asyncio.gather(*(api.get("/health") for _ in range(20)))

    assert looks == 1


@pytest.mark.parametrize(("hours", "status"), [(0, "pass"), (2, "warn")])
async def test_letters_that_wait_for_an_outcome_are_counted(
    api: Client, context: ServerContext, hours: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(context, 2)
    ids = await context.office.letters.freeze("*")
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await context.store.plan_replay(campaign, ids)
    await context.store.take_replay("c-1", limit=2)
    later = datetime.now(UTC) + timedelta(hours=hours)
    monkeypatch.setattr(context.clock, "now", lambda: later)

    answer = await api.get("/health")

    assert answer.json()["status"] == status
    [check] = answer.json()["checks"]["replay:unsettledLetters"]
    assert (check["observedValue"], check["status"]) == (2, status)
    assert f"for {hours * 3600}" in check["output"]


def test_countless_mailboxes_are_not_all_listed() -> None:
    depths = {f"box-{n}": n for n in range(500)}

    told = judge(Office(depths), [], named=True)

    assert len(told.checks["mailbox:openLetters"]) == 20
    assert told.dlq is not None
    assert told.dlq.depth == 499
    assert told.status is Status.WARN


async def test_dropped_lines_of_output_are_a_detail(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bounded_output(monkeypatch) as output:
        output.write(b"x" * 100_000 + b"\n")
        for _ in range(5):
            output.write(b"dropped\n")
        answer, dropped = await api.get("/health"), output.dropped

    assert (answer.status_code, answer.json()["status"]) == (200, "pass")
    (check,) = answer.json()["checks"]["output:linesDropped"]
    assert check["status"] == "pass"
    assert check["observedValue"] == dropped > 2
    assert f"{dropped} lines dropped since 20" in check["output"]
