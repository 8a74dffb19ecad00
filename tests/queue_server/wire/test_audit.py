"""Whatever administrators do to queues is in the office's audit, whoever they are."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from deadletter.core.access import Role
from deadletter.core.errors import Unavailable
from deadletter.core.letter import AuditEntry
from deadletter.queue_server.administration import LONGEST
from deadletter.queue_server.routes import CALLS
from deadletter.server.context import ServerContext
from deadletter.wiring.engines import open_engine
from queue_server.wire.wire_rig import Served, served_by
from server.conftest import context_of, token

LOOKING = {"storage/items.list", "storage/scheduled.list"}
TIMES = {"lease_timeout": "1m", "expire_timeout": "1h"}
JOBS = {"queue_name": "jobs"}
WITHIN = JOBS | {"request_timeout": "5s"}


@pytest.fixture
async def http(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=60.0) as http:
        yield http


@pytest.fixture
async def guarded(url: str) -> AsyncIterator[ServerContext]:
    """A place on each engine that asks for tokens."""
    engine = await open_engine(url)
    yield context_of(engine, guarded=True)
    await engine.close()


async def called(http: httpx.AsyncClient, name: str, /, *, reason: str = "", **fields: Any) -> Any:
    headers = {"dlq-reason": reason.encode()} if reason else {}
    answer = await http.post(f"/v1/{name}", json=fields, headers=[*headers.items()])
    assert answer.status_code == 200, answer.text
    return answer.json()


async def acts(context: ServerContext) -> list[AuditEntry]:
    return list(await context.store.audit(limit=1000))


def test_every_change_of_queues_or_items_is_audited() -> None:
    assert {name for name, call in CALLS.items() if call.change is not None} == {
        name for name, call in CALLS.items() if call.role is Role.ADMIN
    } - LOOKING


async def test_each_act_says_who_did_what_to_how_much_and_why(
    served: Served, http: httpx.AsyncClient
) -> None:
    await called(http, "queues.create", queue_name="dead", **TIMES)
    options = {"max_attempts": 3, "dead_queue": "dead", "requested_partitions": 2}
    await called(http, "queues.create", reason="für März", **JOBS, **TIMES, **options)
    await called(http, "queues.update", reason="slow", **JOBS, lease_timeout="2m")
    items = [{"reference": text} for text in "abc"]
    imported = await called(
        http, "storage/items.import", reason="moved", **JOBS, partition=1, items=items
    )
    ids = [imported["items"][0]["id"], "0" * 16]
    await called(http, "storage/items.delete", reason="bad", **JOBS, partition=1, ids=ids)
    await called(http, "queue.reload", reason="stuck", **JOBS)
    await called(http, "queue.clear", reason="test data", **JOBS, queue=True, destructive=True)
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    new = [{"utf8": "now"}, {"utf8": "later", "enqueue_at": later}]
    await called(http, "queue.produce", **WITHIN, items=new)
    await called(http, "queues.delete", reason="renamed", **JOBS)

    entries = await acts(served.context)

    assert [(e.action, e.target, e.detail, e.reason) for e in entries] == [
        ("queues.create", "dead", "lease 1m0s, expire 1h0m0s", ""),
        (
            *("queues.create", "jobs"),
            "lease 1m0s, expire 1h0m0s, 3 attempts, dead queue dead, 2 partitions",
            "für März",
        ),
        (
            *("queues.update", "jobs"),
            "lease 2m0s, expire 1h0m0s, 3 attempts, dead queue dead, 2 partitions",
            "slow",
        ),
        (*("storage/items.import", "jobs"), "3 of 3 items added to partition 1", "moved"),
        (*("storage/items.delete", "jobs"), "1 of 2 items deleted from partition 1", "bad"),
        ("queue.reload", "jobs", "", "stuck"),
        (*("queue.clear", "jobs"), "2 items deleted, of those waiting, leased", "test data"),
        ("queues.delete", "jobs", "2 items deleted with it", "renamed"),
    ]
    assert {entry.actor for entry in entries} == {"local"}
    assert await served.context.store.verify() == []


async def test_producing_leasing_and_settling_is_no_administration(
    served: Served, http: httpx.AsyncClient
) -> None:
    await called(http, "queues.create", **JOBS, **TIMES)
    before = await acts(served.context)
    said = {"reason": "none of these is audited"}

    items = [{"utf8": "a"}, {"utf8": "b"}]
    await called(http, "queue.produce", **said, **WITHIN, items=items)
    lent = await called(http, "queue.lease", **said, **WITHIN, batch_size=2, client_id="me")
    one, two = (item["id"] for item in lent["items"])
    await called(http, "queue.complete", **said, **WITHIN, partition=0, ids=[one])
    await called(http, "queue.retry", **said, **JOBS, partition=0, items=[{"id": two}])
    for look in ("queues.info", "queue.stats", *LOOKING):
        await called(http, look, **said, **JOBS)

    assert await acts(served.context) == before


@pytest.mark.parametrize("role", list(Role))
async def test_each_role_leaves_its_name_where_it_may_act_and_nothing_elsewhere(
    guarded: ServerContext, role: Role
) -> None:
    assert guarded.items is not None
    shown = await token(guarded, role, name="anna")
    boss = await token(guarded, Role.ADMIN, name="boss")
    asked: dict[str, dict[str, Any]] = {
        "queues.create": JOBS | TIMES,
        "queues.update": JOBS | {"max_attempts": 7},
        "queue.reload": JOBS,
        "storage/items.import": JOBS | {"items": [{"reference": "a"}]},
        "storage/items.delete": JOBS | {"ids": ["0" * 16]},
        "queue.clear": JOBS | {"queue": True},
        "queues.delete": JOBS,
    }
    assert asked.keys() == {name for name, call in CALLS.items() if call.change}

    async with (
        served_by(guarded, []) as served,
        httpx.AsyncClient(base_url=served.url, timeout=60.0) as http,
    ):
        for name, fields in asked.items():
            before = await acts(guarded)
            headers = {"authorization": f"Bearer {shown}", "dlq-reason": "a drill"}
            answer = await http.post(f"/v1/{name}", json=fields, headers=headers)
            new = (await acts(guarded))[len(before) :]

            if role is Role.ADMIN:
                assert answer.status_code == 200, answer.text
                (entry,) = new
                assert (entry.actor, entry.action) == ("anna", name)
                assert (entry.target, entry.reason) == ("jobs", "a drill")
            else:
                assert (answer.status_code, new) == (403, [])
                # For the next call to have something that it could change.
                headers = {"authorization": f"Bearer {boss}"}
                await http.post(f"/v1/{name}", json=fields, headers=headers)

    assert await guarded.store.verify() == []


async def test_rejected_requests_are_not_audited(served: Served, http: httpx.AsyncClient) -> None:
    await called(http, "queues.create", queue_name="dead", **TIMES)
    await called(http, "queues.create", **JOBS, **TIMES, dead_queue="dead")
    before = await acts(served.context)

    for name, fields in (
        ("queues.create", JOBS | TIMES),  # is there
        ("queues.delete", {"queue_name": "dead"}),  # is in use
        ("queues.delete", {"queue_name": "nowhere"}),
        ("queue.reload", {"queue_name": "nowhere"}),
        ("queue.clear", JOBS),  # says not what
        ("storage/items.delete", JOBS | {"partition": 9, "ids": ["x"]}),
    ):
        answer = await http.post(f"/v1/{name}", json=fields)
        assert 400 <= answer.status_code < 500, name

    assert await acts(served.context) == before


async def test_a_reason_beyond_all_bounds_is_refused_before_anything_is_done(
    served: Served, http: httpx.AsyncClient
) -> None:
    await called(http, "queues.create", reason="ü" * LONGEST, **JOBS, **TIMES)

    headers = {"dlq-reason": "x" * (LONGEST + 1)}
    answer = await http.post("/v1/queues.delete", json=JOBS, headers=headers)

    assert answer.status_code == 400
    assert "Dlq-Reason" in answer.json()["message"]
    assert (await served.store.queue("jobs")).name == "jobs"
    (entry,) = await acts(served.context)
    assert entry.reason == "ü" * LONGEST


async def test_a_reason_cannot_write_on_terminals(served: Served, http: httpx.AsyncClient) -> None:
    await called(http, "queues.create", reason="\u202egnihton\x9b2J", **JOBS, **TIMES)

    (entry,) = await acts(served.context)
    assert entry.reason == r"\u202egnihton\x9b2J"


async def test_changes_are_not_confirmed_if_the_audit_fails(
    served: Served, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable("the office is away")

    monkeypatch.setattr(served.context.store, "record", away)

    answer = await http.post("/v1/queues.create", json=JOBS | TIMES)

    assert answer.status_code == 454
