"""A server that dies while it sends a replay: another one continues it."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.message import Delivery
from deadletter.ports import Acked, Engine
from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import opened
from engines.postgresql_time import a_database
from office.making import make_letters
from server.serve.conftest import Served
from servers import Server

# In a parallel run, tests of one server go to one process: it starts once.
pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.xdist_group("postgresql_server")]

LETTERS = 300
RATE = 100.0  # letters a second: slow enough to be caught in the middle
# The command itself, only that others need not wait half a minute for it.
IMPATIENT = """
from deadletter.cli import main
from deadletter.office.replay_sender import ReplaySender
ReplaySender.__init__.__kwdefaults__["lease"] = 2.0
main()
"""


@pytest.fixture
async def database(postgresql_server: Server) -> AsyncIterator[str]:
    async with a_database(postgresql_server.url) as url:
        yield url


async def received(engine: Engine) -> list[Delivery]:
    """Receive and return all messages of the mailbox."""
    source, found = engine.broker.source("orders"), list[Delivery]()
    while some := await source.receive(limit=500, wait=0.0, lease=60.0):
        found += some
        await source.settle([Acked(delivery) for delivery in some])
    return found


async def test_another_server_continues_an_interrupted_replay(
    serve: Callable[..., Served], database: str
) -> None:
    both = [serve("--access", "off", program=IMPATIENT, DLQ_URL=database) for _ in range(2)]
    urls = await asyncio.to_thread(lambda: [served.url for served in both])
    async with (
        opened(database) as engine,
        httpx.AsyncClient(base_url=f"{urls[0]}/api/v1") as dying,
        httpx.AsyncClient(base_url=f"{urls[1]}/api/v1") as other,
    ):
        await engine.letters.keep(make_letters(LETTERS))
        wish = {"query": "is:pending", "expect": LETTERS, "rate": RATE}
        started = await dying.post("/replays", json=wish)
        assert started.status_code == 201, started.text
        campaign = started.json()["replay"]["id"]

        async def unsent() -> int:
            counts = (await other.get(f"/replays/{campaign}")).json()["counts"]
            return int(counts.get(Outcome.PLANNED, 0) + counts.get(Outcome.SENDING, 0))

        async def is_under_way() -> bool:
            return await unsent() < LETTERS - 20

        async def is_sent() -> bool:
            return await unsent() == 0

        await eventually(is_under_way, within=20.0)
        both[0].signal(signal.SIGKILL)
        assert await asyncio.to_thread(both[0].ended) == -signal.SIGKILL
        left = await unsent()
        assert left > 0  # else nobody had to take over anything
        await eventually(is_sent, within=30.0)

        copies = await received(engine)
        found = (await other.get(f"/replays/{campaign}")).json()
    # Here taking, sending and recording are one transaction: each exactly once.
    assert Counter(copy.message.id for copy in copies) == Counter(
        f"m-{number}" for number in range(1, LETTERS + 1)
    )
    lineages = [copy.message.lineage for copy in copies]
    assert {lineage.generation for lineage in lineages if lineage} == {1}
    assert {lineage.campaign for lineage in lineages if lineage} == {campaign}
    assert found["state"] == CampaignState.RUNNING  # until workers have settled them
