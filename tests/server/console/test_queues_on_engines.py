"""The screens of queues with an office in PostgreSQL."""

from collections.abc import AsyncIterator

import httpx
import pytest

from client.serving import served
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import open_engine
from engines.postgresql_time import a_database
from html_pages import Page
from server.conftest import context_of
from server.console.mailbox_rig import furnish
from server.console.test_lent_page import lend
from servers import Server

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("postgresql_server")]


@pytest.fixture
async def url(postgresql_server: Server) -> AsyncIterator[str]:
    async with a_database(postgresql_server.url) as url:
        engine = await open_engine(url, clock=SystemClock(), dice=SystemDice())
        context = context_of(engine)
        await furnish(context)
        await lend(context)
        await engine.close()
        yield url


async def test_all_screens_show_what_is_there(url: str) -> None:
    with served(url) as server:
        async with httpx.AsyncClient(
            base_url=server.url, headers={"accept": "text/html"}, timeout=30
        ) as client:

            async def get(path: str) -> Page:
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
                return Page(answer.text)

            assert (await get("/queues")).h1 == "3 mailboxes, 1 stopped by its brake"
            one = (await get("/queues/orders")).main.text
            assert "5 = 0 + 5" in one
            assert "shop-1:17" in one
            assert "1.8.1 runs on 1 of 2" in one
            assert (await get("/lent")).h1 == "2 lent queues"
            assert "[redacted]" in (await get("/lent/jobs-dead")).main.text
            assert (await get("/intake")).h1 == "No intake is set up"
            workers = (await client.get("/api/v1/workers")).json()
            assert [one["version"] for one in workers] == ["1.8.1", "1.8.0"]
