"""
Servers behind a wire that turns bits.

The worker goes on, no handler is given a changed message, and SIGTERM is obeyed.
`make faults` turns 500 bits on the way to and from PostgreSQL and then lets the wire
fall silent in mid-answer, and 500 on the way from RabbitMQ and from NATS.
"""

import time
from pathlib import Path

import pytest

from deadletter.testing.fakes import eventually
from engines.postgresql_time import a_database
from engines.wire_rig import Rig, a_rig
from servers.fixtures import needing, needing_postgresql


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("kind", [needing_postgresql()])
async def test_a_bad_wire_neither_wedges_a_worker_nor_reaches_its_handlers(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_long = request.config.getoption("--long")
    flips = 500 if is_long else 4
    server = request.getfixturevalue(f"{kind}_server")
    async with a_database(server.url) as url, a_rig(url, server.port, tmp_path) as rig:
        await rig.send(50)
        await rig.seconds_until_handled(within=30)

        rig.proxy.flip = 5_000
        await rig.send_until(lambda: rig.proxy.flips >= flips, within=30 + flips)
        rig.proxy.flip = None
        drained = await rig.seconds_until_ended(within=60)
        await eventually(rig.is_ready, within=20)
        print(f"{rig.sent} sent, {rig.proxy.flips} bits turned, drained {drained:.1f} s later")
        if is_long:
            await _fall_silent(rig)

        began = time.monotonic()
        code = await rig.stop(within=30)
        print(f"stopped with {code} after {time.monotonic() - began:.1f} s")
        assert code == 0 or is_long, "STOPPED BADLY"
        assert not rig.handled()["mangled"], "MANGLED"


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("kind", [needing("rabbitmq"), needing("nats")])
async def test_turned_bits_leave_no_message_with_nobody(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    flips = 500 if request.config.getoption("--long") else 6
    server = request.getfixturevalue(f"{kind}_server")
    office = f"sqlite:///{tmp_path}/office.db"
    async with a_rig(server.url, server.port, tmp_path, office) as rig:
        rig.proxy.flips_requests = False
        rig.proxy.flip = 4_000
        await rig.send_until(lambda: rig.proxy.flips >= flips, within=30 + flips)
        rig.proxy.flip = None
        drained = await rig.seconds_until_ended(within=60 + flips / 5)
        print(
            f"{kind}: {rig.sent} sent, {rig.proxy.flips} bits turned, drained {drained:.1f} s later"
        )
        assert await rig.stop(within=30) == 0, "STOPPED BADLY"
        assert not rig.handled()["mangled"], "MANGLED"
        assert set(await rig.letter_codes()) <= {"CORRUPT"}, "WRONGLY BURIED"


async def _fall_silent(rig: Rig) -> None:
    rig.proxy.half = 40
    await rig.send(20)
    red, why = await rig.seconds_until_red()
    print(f"silence was seen after {red:.1f} s: {why}")
    assert red < 15.0, "SEEN TOO LATE"
