"""
There and back with real frameworks.

A worker of the framework fails a task, `dlq drain` takes it in, `dlq replay
--through` puts it back, and a worker of the framework does it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redis import Redis

from deadletter.assembly.foreign import opened_foreign
from deadletter.testing.waiting import eventually
from servers import Missing, Server
from servers.fixtures import do_without

SHOPS = Path(__file__).with_name("shops")
PATIENCE = 60.0  # seconds for a worker to start and to work


class Shop:
    """An application on a framework, in processes of its own."""

    def __init__(self, framework: str, server: Server, folder: Path) -> None:
        if find_spec(framework) is None:
            do_without(Missing(f"{framework} is not installed: make setup"))
        self.module = f"{framework}_shop"
        self.url = server.url
        self.folder = folder
        self.broken = folder / "broken"
        self._environment = {
            **os.environ,
            "SHOP": str(folder),
            "SHOP_URL": server.url,
            "PYTHONPATH": str(SHOPS),
        }

    def send(self, order: str) -> None:
        """Have the application ask for a task."""
        self._run("-c", f"import {self.module} as shop; shop.send({order!r})")

    @contextmanager
    def worker(self, *words: str) -> Iterator[None]:
        """A worker of the framework, as its users start it."""
        command = [sys.executable, "-m", *words]
        with (self.folder / "worker.log").open("a") as log:
            worker = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
            )
            try:
                yield
            finally:
                worker.terminate()
                try:
                    worker.wait(30)
                finally:
                    worker.kill()

    def dlq(self, *words: str) -> Any:
        """What `dlq` says, on an office of the test's own."""
        office = f"sqlite:///{self.folder / 'office.db'}"
        said = self._run("-m", "deadletter.cli", "--url", office, "--json", *words)
        return [json.loads(line) for line in said.splitlines()]

    def charged(self) -> list[str]:
        """The orders that were done, as often as they were."""
        file = self.folder / "charged"
        return file.read_text().split() if file.exists() else []

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.folder,
            env=self._environment,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


async def there_and_back(shop: Shop, place: str, *worker: str) -> dict[str, Any]:
    """Fail, drain, repair, replay, succeed; the letter as `dlq list` shows it."""
    shop.broken.touch()
    shop.send("o-1")
    async with opened_foreign(shop.url) as foreign:
        dead = foreign.drain(place)
        with shop.worker(*worker):
            await eventually(dead.depth, within=PATIENCE)
        assert shop.charged() == []

        [drained] = shop.dlq("drain", shop.url, place)
        assert (drained["found"], drained["new"]) == (1, 1)
        assert await dead.depth() == 0
        [letter] = [one for one in shop.dlq("list") if "id" in one]

        shop.broken.unlink()
        shop.dlq("replay", "is:pending", "--through", shop.url, "--yes")
        with shop.worker(*worker):
            await eventually(shop.charged, within=PATIENCE)
        assert shop.charged() == ["o-1"]
        assert await dead.depth() == 0
    found: dict[str, Any] = letter
    return found


async def test_celery(rabbitmq_server: Server, tmp_path: Path) -> None:
    shop = Shop("celery", rabbitmq_server, tmp_path)
    quiet = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")
    words = ("celery", "-A", shop.module, "worker", "--pool", "solo", *quiet)

    letter = await there_and_back(shop, "shop.dead", *words)

    assert (letter["source"], letter["consumer"]) == ("shop", "shop.charge")
    assert letter["reason"] == "rejected"


async def test_dramatiq(redis_server: Server, tmp_path: Path) -> None:
    _empty(redis_server)
    shop = Shop("dramatiq", redis_server, tmp_path)
    words = ("dramatiq", shop.module, "--processes", "1", "--threads", "1")

    letter = await there_and_back(shop, "dramatiq:shop", *words)

    assert (letter["source"], letter["attempts"]) == ("shop", 2)
    assert letter["error_type"] == "ValueError"
    assert letter["error_text"] == "order o-1 has no price"


async def test_rq(redis_server: Server, tmp_path: Path) -> None:
    _empty(redis_server)
    shop = Shop("rq", redis_server, tmp_path)
    words = ("rq.cli", "worker", "shop", "--url", redis_server.url, "--quiet")

    letter = await there_and_back(shop, "rq:shop", *words)

    assert (letter["source"], letter["error_type"]) == ("shop", "ValueError")
    assert letter["error_text"] == "order o-1 has no price"


def _empty(server: Server) -> None:
    client: Any = Redis.from_url(server.url)
    client.flushdb()
    client.close()
