"""
Workers behind wires that break frames off, drip, and turn bits.

Each is a process of its own behind a proxy to a real server. It must see what is
wrong within 15 seconds and say so, recover by itself, hand no handler a message that
was changed on its way, and stop when it is told to.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deadletter.testing.fakes import eventually
from engines.postgresql_time import a_database
from engines.wire_rig import Rig, a_rig

pytestmark = pytest.mark.slow

RED_WITHIN = 15.0  # seconds
BREAKS = [
    pytest.param(kind, marks=pytest.mark.xdist_group(f"{kind}_server"))
    for kind in ("postgresql", "redis", "nats", "rabbitmq")
]


@asynccontextmanager
async def a_worker(kind: str, request: Any, place: Path) -> AsyncIterator[Rig]:
    server = request.getfixturevalue(f"{kind}_server")
    if kind == "postgresql":
        async with a_database(server.url) as url, a_rig(url, server.port, place) as rig:
            yield rig
        return
    office = f"sqlite:///{place}/office.db"
    url = f"{server.url}?prefix={place.name[:20]}" if kind == "redis" else server.url
    async with a_rig(url, server.port, place, office) as rig:
        yield rig


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.parametrize("wrong", ["half", "drip"])
async def test_a_server_that_does_not_finish_its_answers_is_noticed_and_waited_out(
    kind: str, wrong: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with a_worker(kind, request, tmp_path) as rig:
        await rig.send(50)
        await rig.seconds_until_handled(within=30)

        setattr(rig.proxy, wrong, 40 if wrong == "half" else 1.0)
        await rig.send(20)
        red, why = await rig.seconds_until_red()
        rig.proxy.half, rig.proxy.drip = None, 0.0
        back = await rig.seconds_until_handled(within=60)
        await eventually(rig.is_ready, within=30)

        print(f"{kind} {wrong}: red after {red:.1f} s, back after {back:.1f} s: {why}")
        assert red < RED_WITHIN
        assert "out of reach" in why or "failed" in why
        assert await rig.stop() == 0


@pytest.mark.parametrize("kind", BREAKS)
async def test_bits_that_turn_on_the_way_stop_no_worker_and_reach_no_handler(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with a_worker(kind, request, tmp_path) as rig:
        await rig.send(50)
        await rig.seconds_until_handled(within=30)

        # An ack that is changed on its way may be that of another message, of which
        # no checksum of ours can know: this is about what we are told.
        rig.proxy.flips_requests = False
        rig.proxy.flip = 4_000
        await rig.send_until(lambda: rig.proxy.flips > 30, within=40)
        rig.proxy.flip = None
        back = await rig.seconds_until_ended(within=90)
        await eventually(rig.is_ready, within=30)

        print(f"{kind}: {rig.sent} sent, {rig.proxy.flips} flips, back {back:.1f} s")
        assert not rig.handled()["mangled"]
        # A claim whose answer never arrived counts as an attempt: of a message with too
        # many of them nobody knows what it did to its workers.
        assert set(await rig.letter_codes()) <= {"CORRUPT", "WORKER_LOST"}
        assert await rig.stop() == 0


async def test_a_worker_stops_when_told_to_however_its_wire_is(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: Any
) -> None:
    async with a_worker("postgresql", request, tmp_path) as rig:
        await rig.send(50)
        await rig.seconds_until_handled(within=30)
        rig.proxy.half = 40
        await rig.send(20)
        await rig.seconds_until_red()

        await rig.stop(within=30)  # its grace is 5 s, and the group's 10 s more
