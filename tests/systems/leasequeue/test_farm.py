"""The render farm: its parts with a real server, and its story as the page shows it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from deadletter import ConfigError, Malformed
from deadletter.client import QueueClient
from deadletter.queue_server.model import NewItem
from deadletter.testing.fakes import eventually
from docs.transcript import difference
from leasequeue import farm_client
from leasequeue.__main__ import main
from leasequeue.frame import Frame, decode_frame, encode_frame, frames_of_film
from leasequeue.picture import TooLarge, render
from leasequeue.settings import DEAD, FRAMES, Settings, read
from leasequeue.worker import Worker
from servers.common import free_port
from systems.leasequeue.rig import WITHIN, Server, client_of, waiting

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = Frame("sea", 7, 8, 6)


def test_a_frame_comes_out_of_the_queue_as_it_went_in() -> None:
    item = encode_frame(SMALL)

    assert decode_frame(item.payload) == SMALL
    assert (item.reference, item.kind) == ("sea-007", "frame")


@pytest.mark.parametrize(
    "payload",
    [
        b"no frame",
        b"\xff",
        b'{"film": "../etc", "number": 1, "width": 1, "height": 1}',
        b'{"film": "sea", "number": 1, "width": "64", "height": 48}',
        b'{"film": "sea", "number": 1, "width": 0, "height": 48}',
    ],
)
def test_unrenderable_jobs_are_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed):
        decode_frame(payload)


def test_a_picture_is_a_picture_and_not_too_large() -> None:
    picture = render(SMALL, pixels=48)

    assert picture.startswith(b"\x89PNG")
    assert b"IEND" in picture
    with pytest.raises(TooLarge, match="8 x 6 is more than 47 pixels"):
        render(SMALL, pixels=47)


def test_invalid_environment_variables_are_rejected() -> None:
    assert read({"FARM_LEASE": "2.5", "FARM_PORT": "9"}).lease == 2.5
    with pytest.raises(ConfigError, match="FARM_"):
        read({"FARM_PORT": "nine"})


@pytest.fixture
def settings(server_on_memory: Server, tmp_path: Path) -> Settings:
    return Settings(
        server=server_on_memory.address,
        pictures=str(tmp_path / "pictures"),
        attempts=2,
        pause=0.0,
        pixels=100,
    )


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[QueueClient]:
    async with client_of(settings.url) as client:
        await farm_client.create_queues(client, settings)
        await farm_client.create_queues(client, settings)  # again: it updates them
        yield client
        await client.delete_queue(FRAMES)
        await client.delete_queue(DEAD)


async def _work_until(queue: QueueClient, settings: Settings, *, is_done: object) -> list[str]:
    said: list[str] = []
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(queue, settings, said.append).run(stop))
    await eventually(is_done, within=WITHIN)  # type: ignore[arg-type]
    stop.set()
    await asyncio.wait_for(working, WITHIN)
    return said


async def test_a_worker_completes_returns_and_declares_dead(
    queue: QueueClient, settings: Settings
) -> None:
    await farm_client.request_frames(queue, frames_of_film("sea", 3, 8, 6))
    await farm_client.request_frames(queue, frames_of_film("poster", 1, 20, 20))
    await queue.produce(FRAMES, [NewItem(b"no frame", reference="mistyped")])

    async def is_done() -> bool:
        return not await queue.items(FRAMES) and len(await queue.items(DEAD)) == 2

    said = await _work_until(queue, settings, is_done=is_done)

    pictures = sorted(path.name for path in settings.folder.iterdir())
    assert pictures == ["sea-000.png", "sea-001.png", "sea-002.png"]
    assert {item.reference for item in await queue.items(DEAD)} == {"poster-000", "mistyped"}
    assert len([line for line in said if line.startswith("poster-000, att")]) == 2
    assert len([line for line in said if line.startswith("mistyped is dead")]) == 1


async def test_repairable_dead_jobs_are_requested_again(
    queue: QueueClient, settings: Settings
) -> None:
    await farm_client.request_frames(queue, frames_of_film("poster", 2, 20, 20))
    await queue.produce(FRAMES, [NewItem(b"no frame", reference="mistyped")])

    async def is_dead() -> bool:
        return len(await queue.items(DEAD)) == 3

    await _work_until(queue, settings, is_done=is_dead)

    sent = await farm_client.request_again(queue, farm_client.resize_to(8, 6))

    assert sorted(frame.name for frame in sent) == ["poster-000", "poster-001"]
    (left,) = await queue.items(DEAD)
    assert (left.reference, left.is_leased) == ("mistyped", False)
    asked = [decode_frame(item.payload) for item in await queue.items(FRAMES)]
    assert {(frame.width, frame.height) for frame in asked} == {(8, 6)}


async def test_a_worker_that_is_told_to_stop_holds_no_lease(
    queue: QueueClient, settings: Settings
) -> None:
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(queue, settings, print).run(stop))
    await eventually(lambda: waiting(settings.url, FRAMES) == 1, within=WITHIN)
    stop.set()
    await asyncio.wait_for(working, WITHIN)

    await farm_client.request_frames(queue, [SMALL])
    lent = await queue.lease(FRAMES, wait=WITHIN)
    assert lent.items[0].attempts == 1


def _run(*words: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "leasequeue", *words],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_service_is_a_server_and_a_worker_until_it_is_told_to_stop(tmp_path: Path) -> None:
    here = {
        "FARM_STORE": f"sqlite:///{tmp_path}/farm.db",
        "FARM_PORT": str(free_port()),
        "FARM_PICTURES": str(tmp_path / "pictures"),
    }
    farm = _run(**here)
    assert farm.stdout is not None
    try:
        while "is ready" not in farm.stdout.readline():
            assert farm.poll() is None
        asking = _run("film", "sea", "1", "8x6", **here)
        assert asking.communicate(timeout=WITHIN)[0] == "Requested 1 frame of sea.\n"
        while "sea-000 rendered" not in farm.stdout.readline():
            assert farm.poll() is None
        farm.send_signal(signal.SIGTERM)

        assert farm.wait(WITHIN) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{here['FARM_PORT']}/health/live")
    finally:
        farm.kill()
        farm.wait()
        farm.stdout.close()
    assert (tmp_path / "pictures" / "sea-000.png").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nonsense",), "python -m leasequeue film NAME FRAMES SIZE"),
        (("film", "sea", "x", "8x6"), "invalid number of frames 'x'"),
        (("again", "large"), "invalid size 'large'"),
    ],
)
def test_invalid_commands_are_explained(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words]) == 2

    assert told in capsys.readouterr().err


@pytest.mark.engines
@pytest.mark.xdist_group("postgresql_server")
@pytest.mark.slow
@pytest.mark.usefixtures("go")
def test_the_demo_tells_what_the_page_shows() -> None:
    page = (EXAMPLES / "leasequeue" / "README.md").read_text()
    shown = page.partition("```text\n")[2].partition("\n```")[0]

    ran = subprocess.run(
        [sys.executable, "-m", "leasequeue.demo", "--once"],
        env={**os.environ, "PYTHONPATH": f"{EXAMPLES}:{EXAMPLES.parent / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = difference(_masked(shown), _masked(ran.stdout))
    assert said is None, said


def _masked(text: str) -> list[str]:
    return re.sub(r"\b[0-9a-f]{16}\b", "ITEM", text).splitlines()


def test_the_page_shows_the_code_as_it_is() -> None:
    page = (EXAMPLES / "leasequeue" / "README.md").read_text()
    shown = page.partition("```python\n")[2].partition("```")[0]

    assert shown.strip() in (EXAMPLES / "leasequeue" / "worker.py").read_text()
    shown = page.partition("```go\n")[2].partition("```")[0]
    assert shown.strip() in (EXAMPLES / "leasequeue" / "go_worker" / "main.go").read_text()
    for name in Settings.__struct_fields__:
        default = json.dumps(getattr(Settings(), name)).strip('"')
        line = next(line for line in page.splitlines() if f"`FARM_{name.upper()}`" in line)
        assert default.removesuffix(".0") in line.partition("|")[2], line
