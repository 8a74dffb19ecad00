"""Who may ask the queue server for what."""

from collections.abc import AsyncIterator

import httpx
import pytest

from deadletter.core.access import Role
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.wiring.engines import open_engine
from queue_server.wire.wire_rig import REQUESTS, running
from server.conftest import context_of, token

LOOKING = {"queue.stats", "queues.list", "queues.info"}
WORKING = {"queue.produce", "queue.lease", "queue.complete", "queue.retry"}


@pytest.fixture
async def context() -> AsyncIterator[ServerContext]:
    engine = await open_engine("memory://")
    yield context_of(engine, guarded=True)
    await engine.close()


@pytest.fixture
async def http(context: ServerContext) -> AsyncIterator[httpx.AsyncClient]:
    async with running(build(context)) as url, httpx.AsyncClient(base_url=url) as http:
        yield http


def allowed(role: Role) -> set[str]:
    return {Role.READER: LOOKING, Role.OPERATOR: LOOKING | WORKING, Role.ADMIN: set(REQUESTS)}[role]


@pytest.mark.parametrize("role", list(Role))
async def test_each_role_may_do_its_own(
    http: httpx.AsyncClient, context: ServerContext, role: Role
) -> None:
    headers = {"authorization": f"Bearer {await token(context, role)}"}

    codes = {
        name: (await http.post(f"/v1/{name}", json={}, headers=headers)).status_code
        for name in REQUESTS
    }

    assert {name for name, code in codes.items() if code != 403} == allowed(role)
    assert set(codes.values()) <= {200, 400, 403}


async def test_unknown_callers_are_rejected(http: httpx.AsyncClient) -> None:
    for headers in ({}, {"authorization": "Bearer dlq_x_" + "0" * 64}):
        for name in REQUESTS:
            answer = await http.post(f"/v1/{name}", json={}, headers=headers)

            assert answer.status_code in {401, 429}
            assert answer.json()["code"] == answer.status_code
            assert answer.json()["code_text"] in {"Unauthorized", "Too Many Requests"}


async def test_rejected_callers_get_a_www_authenticate_header(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/queues.list", json={})

    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_body_is_not_read_of_somebody_unknown(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/queue.produce", content=b" " * 6_000_000)

    assert answer.status_code == 401


async def test_other_methods_and_paths_tell_nothing_about_access(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/queues.list")).status_code == 400
    assert (await http.post("/v1/nothing")).status_code == 501
