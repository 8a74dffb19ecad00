"""Searches are limited in time, report their progress, and do not block others."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from httpx import AsyncClient
from litestar.testing import AsyncTestClient

from client.serving import Served, served
from deadletter.core.access import Role
from deadletter.core.query import Budget, Meter, needs_contents
from deadletter.ports import Engine
from deadletter.server.app import build
from deadletter.server.context import AT_ONCE, WAITING
from deadletter.settings import Serve, Settings
from deadletter.stores.sqlite import letters as store
from deadletter.stores.sqlite import search
from office.making import make_letter, make_letters
from server.api.conftest import Api
from server.conftest import context_of, token

COSTLY = "body.order:>1000"


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each step of a search open three letters."""
    monkeypatch.setattr(store, "Meter", partial(Meter, budget=Budget(opened=3)))


@pytest.fixture
async def hasty(engine: Engine) -> AsyncIterator[Api]:
    """A client of a server with short searches and a small share."""
    settings = Settings(serve=Serve(search_seconds=0.0, search_share=1e-6))
    context = context_of(engine, settings=settings)
    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path}/office.db") as server:
        yield server


@pytest.mark.usefixtures("short_steps")
async def test_an_answer_that_is_not_complete_says_how_far_it_looked(
    hasty: Api, engine: Engine
) -> None:
    assert engine.letters is not None
    kept = make_letters(10)
    await engine.letters.keep(kept)

    page = (await search_for(hasty, COSTLY)).json()

    assert page["heads"] == []
    assert (page["looked_at"], page["letters"]) == (3, 10)
    assert page["back_to"] == kept[2].head.dead_at.isoformat().replace("+00:00", "Z")
    assert page["after"] is not None


async def test_a_page_that_is_full_says_nothing_of_it(api: Api, engine: Engine) -> None:
    assert engine.letters is not None
    await engine.letters.keep(make_letters(3))

    page = (await search_for(api, "", limit=2)).json()

    assert page["after"] is not None
    assert page["letters"] is None


@pytest.mark.usefixtures("short_steps")
async def test_only_letters_of_ones_own_mailboxes_are_counted(engine: Engine) -> None:
    assert engine.letters is not None
    mails = [make_letter(n, source="mails") for n in range(50, 55)]
    await engine.letters.keep([*make_letters(5), *mails])
    settings = Settings(serve=Serve(search_seconds=0.0))
    context = context_of(engine, settings=settings, guarded=True)
    shown = await token(context, Role.READER, "mails")

    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        client.headers["authorization"] = f"Bearer {shown}"
        page = (await search_for(client, COSTLY)).json()

    assert page["letters"] == 5


async def test_callers_above_their_search_budget_are_told_to_wait(hasty: Api) -> None:
    assert (await search_for(hasty, COSTLY)).status_code == 200

    again = await search_for(hasty, COSTLY)

    assert again.status_code == 429
    assert int(again.headers["retry-after"]) > 0
    assert again.json()["type"] == "urn:deadletter:problem:search-limit"
    assert "indexed field" in again.json()["detail"]
    assert (await search_for(hasty, "is:pending")).status_code == 200


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Block searches in the store until the returned event is set."""
    over = threading.Event()
    find = search.find

    def slow(connection: Any, query: Any, **options: Any) -> Any:
        if needs_contents(query):
            over.wait(30)
        return find(connection, query, **options)

    monkeypatch.setattr(search, "find", slow)
    yield over
    over.set()


async def test_costly_searches_do_not_keep_others_waiting(
    tmp_path: Path, stuck: threading.Event
) -> None:
    with served(f"sqlite:///{tmp_path}/office.db", access="on") as server:
        server.keep(*make_letters(3))
        shown = [server.token(Role.READER, name=f"r{n}") for n in range(6)]
        auth = [{"authorization": f"Bearer {one}"} for one in shown]
        async with AsyncClient(base_url=server.url, timeout=60) as client:
            costly = [asyncio.create_task(search_for(client, COSTLY, headers=one)) for one in auth]
            await asyncio.wait(costly, timeout=0.5)  # they have come by then
            async with asyncio.timeout(20):
                plain = await search_for(client, "is:pending", headers=auth[0])
                health = await client.get("/health")
            assert not any(task.done() for task in costly)
            stuck.set()
            answers = await asyncio.gather(*costly)

    assert len(plain.json()["heads"]) == 3
    assert health.status_code == 200
    assert {answer.status_code for answer in answers} == {200}


async def test_a_caller_has_a_few_costly_searches_at_once(
    server: Served, stuck: threading.Event
) -> None:
    async with AsyncClient(base_url=server.url, timeout=60) as client:
        most = AT_ONCE + WAITING
        costly = [asyncio.create_task(search_for(client, COSTLY)) for _ in range(most + 1)]
        async with asyncio.timeout(20):
            done, _ = await asyncio.wait(costly, return_when=asyncio.FIRST_COMPLETED)
        stuck.set()
        answers = await asyncio.gather(*costly)

    assert sorted(answer.status_code for answer in answers) == [*[200] * most, 429]
    (refused,) = [task.result() for task in done]
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"


async def test_a_caller_does_not_wait_for_ever(
    server: Served, stuck: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.server.context.PATIENCE", 0.05)
    async with AsyncClient(base_url=server.url, timeout=60) as client:
        costly = [asyncio.create_task(search_for(client, COSTLY)) for _ in range(AT_ONCE + 1)]
        async with asyncio.timeout(20):
            done, _ = await asyncio.wait(costly, return_when=asyncio.FIRST_COMPLETED)
        stuck.set()
        await asyncio.gather(*costly)

    assert [task.result().status_code for task in done] == [429]


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize(
    ("path", "search"),
    [
        ("/api/v1/replays/plan", "query"),
        ("/api/v1/letters/review", "query"),
        ("/admin/dlq/orders/replay", "filter"),
    ],
)
async def test_letters_are_chosen_completely_or_not_at_all(
    api: Api, engine: Engine, path: str, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.letters is not None
    await engine.letters.keep(make_letters(10))
    monkeypatch.setattr("deadletter.server.search.CHOOSING", 0.0)

    answer = await api.post(path, json={search: "body.order:>0"})

    assert answer.status_code == 400
    assert "too costly to choose letters by" in answer.json()["detail"]


def test_a_search_ends_with_its_client(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    endless = f"{numbers} SELECT max(i) FROM n"

    def find(connection: Any, query: Any, **options: Any) -> Any:
        begun.set()
        try:
            connection.execute(endless).fetchone()
        finally:
            ended.set()

    monkeypatch.setattr(search, "find", find)
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port)) as client:
        client.sendall(
            f"GET /api/v1/letters?query={COSTLY} HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
        )
        assert begun.wait(10)
        assert not ended.is_set()

    assert ended.wait(10)


async def search_for(
    client: AsyncClient | Api, query: str, *, limit: int = 50, headers: dict[str, str] | None = None
) -> Any:
    params: dict[str, Any] = {"query": query, "limit": limit}
    return await client.get("/api/v1/letters", params=params, headers=headers)
