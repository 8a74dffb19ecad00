"""The worker of the render farm in Go, against a real server."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadletter.client import QueueClient
from deadletter.queue_server.model import NewItem
from deadletter.testing.fakes import eventually
from leasequeue import demo, farm_client
from leasequeue.frame import frames_of_film
from leasequeue.settings import DEAD, FRAMES, Settings
from servers import Missing, golang
from systems.leasequeue.rig import WITHIN, Server, client_of, waiting

WORKER = Path(__file__).parents[3] / "examples" / "leasequeue" / "go_worker"


@pytest.fixture(scope="session")
def program(go: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert go.exists()
    return golang.build(WORKER, tmp_path_factory.mktemp("worker") / "go_worker")


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
        yield client
        await client.delete_queue(FRAMES)
        await client.delete_queue(DEAD)


@contextmanager
def _working(program: Path, settings: Settings, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    here = {
        "FARM_SERVER": settings.url,
        "FARM_PICTURES": settings.pictures,
        "FARM_PAUSE": str(settings.pause),
        "FARM_PIXELS": str(settings.pixels),
    }
    with log.open("wb") as out:
        process = subprocess.Popen([program], env={**os.environ, **here}, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_it_completes_returns_and_gives_up_as_the_one_in_python(
    program: Path, queue: QueueClient, settings: Settings, tmp_path: Path
) -> None:
    await farm_client.request_frames(queue, frames_of_film("sea", 3, 8, 6))
    await farm_client.request_frames(queue, frames_of_film("poster", 1, 20, 20))
    mistakes = {
        "text": b"no frame",
        "path": b'{"film": "../etc", "number": 1, "width": 1, "height": 1}',
        "width": b'{"film": "sea", "number": 12, "width": "64", "height": 48}',
        "more": b'{"film": "sea", "number": 1, "width": 1, "height": 1, "depth": 1}',
    }
    items = [NewItem(payload, reference=name) for name, payload in mistakes.items()]
    await queue.produce(FRAMES, items)
    log = tmp_path / "worker.log"

    async def is_done() -> bool:
        return not await queue.items(FRAMES) and len(await queue.items(DEAD)) == 5

    with _working(program, settings, log):
        await eventually(is_done, within=WITHIN)

    pictures = sorted(path.name for path in settings.folder.iterdir())
    assert pictures == ["sea-000.png", "sea-001.png", "sea-002.png"]
    assert (settings.folder / "sea-000.png").read_bytes().startswith(b"\x89PNG")
    assert {item.reference for item in await queue.items(DEAD)} == {"poster-000", *mistakes}
    said = log.read_text().splitlines()
    attempts = [line for line in said if line.startswith("poster-000, attempt")]
    assert attempts == [
        f"poster-000, attempt {number}: 20 x 20 is more than 100 pixels" for number in (1, 2)
    ]
    assert len([line for line in said if " is dead: " in line]) == len(mistakes)


async def test_it_ends_when_told_to_and_leaves_no_lease(
    program: Path, queue: QueueClient, settings: Settings, tmp_path: Path
) -> None:
    with _working(program, settings, tmp_path / "worker.log") as process:
        await eventually(lambda: waiting(settings.url, FRAMES) == 1, within=WITHIN)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN) == 0

    await eventually(lambda: waiting(settings.url, FRAMES) == 0, within=WITHIN)
    await farm_client.request_frames(queue, frames_of_film("sea", 1, 8, 6))
    leased = await queue.lease(FRAMES, wait=WITHIN)
    assert leased.items[0].attempts == 1


class _Stage:
    """A stage that starts nothing."""

    place = Path("/nowhere")

    def __init__(self) -> None:
        self.started: list[tuple[str, ...]] = []
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def process(self, *words: str, **_: Any) -> None:
        self.started.append(words)


def test_without_go_the_demo_says_so_and_uses_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise Missing("Go is not installed: install Go 1.22 or later (package golang-go)")

    monkeypatch.setattr(golang, "find", missing)
    farm = object.__new__(demo.Farm)
    farm.stage = stage = _Stage()  # type: ignore[assignment]
    farm._environ = {}

    farm._other_worker()

    assert stage.started == [("leasequeue", "worker")]
    (said,) = stage.said
    assert said.startswith("Go is not installed: install Go 1.22")
