"""Several servers on one PostgreSQL act as one service."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import opened
from engines.postgresql_time import a_database
from office.making import make_letter
from server.serve.conftest import Served
from servers import Server

# In a parallel run, tests of one server go to one process: it starts once.
pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("postgresql_server")]

Serve = Callable[..., Served]
QUEUE = {
    "queue_name": "orders",
    "lease_timeout": "1m",
    "expire_timeout": "10m",
    "requested_partitions": 1,
}


@pytest.fixture
async def database(postgresql_server: Server) -> AsyncIterator[str]:
    async with a_database(postgresql_server.url) as url:
        yield url


async def test_changes_through_one_server_are_visible_on_the_other(
    serve: Serve, database: str
) -> None:
    both = [serve(DLQ_URL=database), serve(DLQ_URL=database)]
    await asyncio.to_thread(lambda: [served.url for served in both])
    await eventually(lambda: any(served.tokens for served in both))
    # Of two that start at once, one shows the first token.
    (token,) = [token for served in both for token in served.tokens]
    async with opened(database) as engine:
        await engine.letters.keep([make_letter(1)])

    def story() -> None:
        one, other = (served.client(token) for served in both)
        with one, other:
            (head,) = other.get("/api/v1/letters").json()["heads"]
            body = {"ids": [head["id"]], "reason": "seen"}
            assert one.post("/api/v1/letters/review", json=body).status_code < 300
            seen = other.get(f"/api/v1/letters/{head['id']}").json()
            assert seen["head"]["state"] == "reviewed"

            made = one.post("/api/v1/tokens", json={"name": "ci", "role": "reader"})
            assert made.status_code == 201
            with both[1].client(made.json()["token"]) as ci:
                assert ci.get("/api/v1/letters").status_code == 200
                gone = one.delete(f"/api/v1/tokens/{made.json()['id']}")
                assert gone.status_code < 300
                assert ci.get("/api/v1/letters").status_code == 401

    await asyncio.to_thread(story)


async def test_items_produced_on_one_server_are_leased_by_the_other(
    serve: Serve, database: str
) -> None:
    both = [serve("--access", "off", DLQ_URL=database) for _ in range(2)]

    def story() -> None:
        one, other = (served.client() for served in both)
        with one, other:
            assert one.post("/v1/queues.create", json=QUEUE).status_code == 200
            item = {"bytes": "aGVsbG8=", "kind": "greeting"}
            body = {"queue_name": "orders", "request_timeout": "10s", "items": [item]}
            assert one.post("/v1/queue.produce", json=body).status_code == 200
            both[0].signal()
            assert both[0].ended() == 0
            lease = {
                "queue_name": "orders",
                "client_id": "c",
                "batch_size": 1,
                "request_timeout": "10s",
            }
            lent = other.post("/v1/queue.lease", json=lease)
            assert lent.status_code == 200
            assert [item["kind"] for item in lent.json()["items"]] == ["greeting"]

    await asyncio.to_thread(story)
