"""Several servers over one office, each with an engine of its own: one alert."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.observe.alerts import Alerting
from deadletter.system import SystemClock
from deadletter.wiring.engines import opened
from engines.postgresql_time import a_database
from observe.receivers import Hook, listening
from office.making import make_letter
from servers.fixtures import needing_postgresql

SERVERS = 4
CAUSES = 8


@pytest.fixture(params=["sqlite", needing_postgresql()])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/office.db"
    else:
        server = request.getfixturevalue("postgresql_server")
        async with a_database(server.url) as database:
            yield database


async def test_people_hear_of_it_once(url: str) -> None:
    hook, clock = Hook(), SystemClock()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(listening(hook, "http"))
        target = AlertTarget(kind=TargetKind.WEBHOOK, to=hook.url)
        servers: list[Alerting] = []
        for _ in range(SERVERS):
            engine = await stack.enter_async_context(opened(url))
            assert engine.letters is not None
            servers.append(
                Alerting(
                    Alerts(targets=(target,), growing=1),
                    engine.letters,
                    engine.ledger,
                    clock=clock,
                    observe=lambda event: None,
                )
            )
        now = clock.now()
        await engine.letters.keep(
            [make_letter(n, error_type=f"E{n}", now=now) for n in range(CAUSES)]
        )

        for _ in range(3):
            await asyncio.gather(*(server.look() for server in servers))

    told = [
        alert["id"] for body in hook.bodies for alert in msgspec.json.decode(body)["data"]["alerts"]
    ]
    assert len(told) == len(set(told)) == 2 * CAUSES
