"""The recipes for RabbitMQ, followed to the letter with pika and Celery's workers."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from deadletter.testing.fakes import eventually
from docs.reading import ROOT, blocks, commands
from servers import Server

pytestmark = pytest.mark.engines

PAGE = ROOT / "docs" / "recipes" / "rabbitmq.md"
PATIENCE = 60.0  # seconds for a worker to start and to work


class Recipe:
    """Files and commands of one section, in a folder and on queues of their own."""

    def __init__(self, title: str, server: Server, folder: Path, kind: str) -> None:
        self.folder = folder
        self.url = server.url
        self._kind = kind
        self._environment = {
            **os.environ,
            "DLQ_URL": f"sqlite:///{folder / 'office.db'}",
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(folder))),
        }
        section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
        self.commands: list[str] = []
        for block in blocks(section):
            if block.file is not None:
                (folder / block.file).write_text(self._here(block.text))
            else:
                found = commands(block.text)
                self.commands += [self._here(one.text) for one in found]

    def _here(self, text: str) -> str:
        text = text.replace("amqp://guest:guest@localhost/", self.url)
        return text.replace('KIND = "classic"', f'KIND = "{self._kind}"')

    def run(self, command: str) -> str:
        """Type one command."""
        if command.startswith("echo "):
            text, _, file = command.removeprefix("echo ").partition(" > ")
            (self.folder / file).write_text(text)
            return ""
        words = shlex.split(command)
        module = {"dlq": ["-m", "deadletter.cli", "--json"], "python": []}[words[0]]
        done = subprocess.run(
            [sys.executable, *module, *words[1:]],
            capture_output=True,
            check=False,
            cwd=self.folder,
            env=self._environment,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def worker(self, command: str) -> Iterator[None]:
        """Run Celery's worker until the block ends."""
        with (self.folder / "worker.log").open("a") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", *shlex.split(command)],
                cwd=self.folder,
                env=self._environment,
                stderr=log,
                stdout=log,
            )
            try:
                yield
            finally:
                worker.terminate()
                try:
                    worker.wait(30)
                finally:
                    worker.kill()

    def letters(self) -> list[dict[str, Any]]:
        lines = self.run("dlq list").splitlines()
        return [one for one in map(json.loads, lines) if "id" in one]


@pytest.fixture
def broker(rabbitmq_server: Server) -> Iterator[Any]:
    """A channel; the queues of the recipes are gone before and afterwards."""
    parameters = pika.URLParameters(rabbitmq_server.url)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()

    def forget() -> None:
        for queue in ("orders", "orders.dead", "mail", "mail.dead"):
            channel.queue_delete(queue)
        channel.exchange_delete("mail")

    forget()
    yield channel
    forget()
    connection.close()


def holds(channel: Any, queue: str, number: int) -> Callable[[], bool]:
    def look() -> bool:
        declared = channel.queue_declare(queue, passive=True)
        return bool(declared.method.message_count == number)

    return look


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_recipe_for_any_client(
    rabbitmq_server: Server, broker: Any, tmp_path: Path, kind: str
) -> None:
    recipe = Recipe("Any client", rabbitmq_server, tmp_path, kind)

    said = [recipe.run(command) for command in recipe.commands]

    assert said[-1] == 'handled order.eu {"order": "o-1"}\n'
    [letter] = recipe.letters()
    assert (letter["source"], letter["reason"]) == ("orders", "rejected")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_the_recipe_for_celery(
    rabbitmq_server: Server, broker: Any, tmp_path: Path, kind: str
) -> None:
    recipe = Recipe("Celery", rabbitmq_server, tmp_path, kind)
    start, order, drain, _, mend, replay, again = recipe.commands

    with recipe.worker(start):
        await eventually(lambda: "ready." in (tmp_path / "worker.log").read_text(), within=PATIENCE)
        recipe.run(order)
        await eventually(holds(broker, "mail.dead", 1), within=PATIENCE)
    recipe.run(drain)
    [letter] = recipe.letters()
    recipe.run(mend)
    recipe.run(replay)
    with recipe.worker(again):
        await eventually((tmp_path / "sent.txt").exists, within=PATIENCE)
        await eventually(holds(broker, "mail", 0), within=PATIENCE)

    assert (letter["source"], letter["consumer"]) == ("mail", "mail.send")
    assert (tmp_path / "sent.txt").read_text() == "sent o-1 9.90\n"
    assert holds(broker, "mail.dead", 0)()
