"""The replay command in TypeScript, run by real Node against a real server."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from deadletter import State
from deadletter.testing.fakes import eventually
from servers import Missing, tsx
from servers.common import free_port
from servers.fixtures import do_without
from systems.courier.rig import EXAMPLES, Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

FOLDER = Path(EXAMPLES) / "courier"
SCRIPT = "scripts/dlq/replay-dlq.ts"


@pytest.fixture
def runner() -> tuple[Path, Path]:
    """Node and tsx."""
    try:
        return tsx.find()
    except Missing as missing:
        do_without(missing)
        raise


@pytest.fixture
async def server(rig: Rig) -> AsyncIterator[str]:
    """The address of `dlq serve` on the office of the test."""
    port = free_port()
    serving = await rig.start(
        *("-m", "deadletter.cli", "serve", "--port", str(port), "--access", "off"),
        DLQ_URL=rig.settings.queue_url,
        DLQ_OFFICE=rig.settings.mongodb_url,
    )
    url = f"http://127.0.0.1:{port}"

    async def is_up() -> bool:
        try:
            return (await rig.client.get(f"{url}/api/v1/letters")).is_success
        except httpx.TransportError:
            return False

    await eventually(is_up, within=60)
    yield url
    serving.terminate()
    await serving.wait()


async def run(runner: tuple[Path, Path], *arguments: str, server: str = "") -> tuple[int, str, str]:
    """Run the script; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *runner,
        SCRIPT,
        *arguments,
        cwd=FOLDER,
        env={**os.environ, "DLQ_SERVER": server},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def died(rig: Rig, *ids: str) -> None:
    """Let events die, one after the other."""
    rig.fault(status=422, message="validation failed")
    await rig.work()
    for count, event_id in enumerate(ids, 1):
        await rig.report(event_id)
        await eventually(lambda count=count: are_dead(rig, count), within=20)
    await rig.rest()
    rig.stand.faults.clear()
    rig.stand.seen.clear()


async def are_dead(rig: Rig, count: int) -> bool:
    return len(await rig.letters()) == count


async def test_the_script_sends_the_oldest_back_and_leaves_the_others(
    rig: Rig, runner: tuple[Path, Path], server: str
) -> None:
    await died(rig, "evt_1", "evt_2", "evt_3")
    await rig.work()

    code, out, err = await run(runner, "--limit", "2", server=server)

    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "DLQ replay completed: 2 of at most 2 dead events sent"

    async def are_replayed() -> bool:
        return [one.head.state for one in await rig.letters()] == [
            *(State.REPLAYED, State.REPLAYED, State.PENDING)
        ]

    await eventually(are_replayed, within=30)
    assert [one.event_id for one in rig.stand.seen] == ["evt_1", "evt_2"]
    audit = rig.db["dead_letter_audit"].find({"detail": "pending to reviewed"})
    assert {one["reason"] async for one in audit} == {"replayed by hand"}


async def test_events_processed_meanwhile_do_not_use_up_the_limit(
    rig: Rig, runner: tuple[Path, Path], server: str
) -> None:
    await died(rig, "evt_1", "evt_2")
    await rig.report("evt_1")
    await rig.work()
    await rig.until("processed", "courier-x:evt_1")

    code, _, err = await run(runner, "--limit", "1", server=server)

    assert code == 0, err
    await rig.until("processed", "courier-x:evt_2")
    assert [one.event_id for one in rig.stand.seen] == ["evt_1", "evt_2"]


async def test_without_dead_events_nothing_is_sent(
    rig: Rig, runner: tuple[Path, Path], server: str
) -> None:
    code, out, _ = await run(runner, server=server)

    assert (code, out) == (0, "DLQ replay completed: 0 of at most 10 dead events sent\n")


@pytest.mark.parametrize("arguments", [["--limit", "0"], ["--limit", "x"], ["--limits", "3"]])
async def test_wrong_arguments_are_named(runner: tuple[Path, Path], arguments: list[str]) -> None:
    code, _, err = await run(runner, *arguments)

    assert code == 2
    assert arguments[0].removesuffix("s") in err


async def test_a_server_that_does_not_answer_is_an_error(runner: tuple[Path, Path]) -> None:
    code, _, err = await run(runner, "--limit", "1", server=f"http://127.0.0.1:{free_port()}")

    assert code == 1
    assert err != ""
