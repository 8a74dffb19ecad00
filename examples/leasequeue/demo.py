"""
The story of a render farm: films, a lost worker, dead frames, and their repair.

    PYTHONPATH=examples:tests python -m leasequeue.demo --once

PostgreSQL, the queue server and two workers run as processes of their own, and are
killed where the story says so.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from deadletter.client import QueueClient
from deadletter.queue_server.model import Item
from servers import PostgreSQL
from stage import Process, Stage

# Seconds. A frame takes half a second, but may take much longer on a busy machine.
LEASE = 12.0
PATIENCE = 120.0  # seconds that one step may take
FILM, SLOW = "12", "6"
_SERVER = re.compile(r"started server (\d+)")
_PYTHON = {"python": [sys.executable], "dlq": [sys.executable, "-m", "deadletter.cli"]}


_HERE = str(Path(__file__).parent.parent)


class Farm:
    """The processes of the farm, and the commands that a person types."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        port = stage.port()
        self.url = f"http://127.0.0.1:{port}"
        self.pictures = stage.place / "pictures"
        self._environ = {
            "FARM_STORE": stage.server(PostgreSQL).url,
            "FARM_PORT": str(port),
            "FARM_PICTURES": str(self.pictures),
            "FARM_LEASE": str(LEASE),
            "FARM_PAUSE": "0.2",
            "DLQ_SERVER": self.url,
        }
        self.main = self._process()
        self.other = self._process("worker")

    def _process(self, *words: str) -> Process:
        process = self.stage.process("leasequeue", *words, env=self._environ)
        self.until("a worker is ready", lambda: "is ready" in process.said())
        return process

    def until(self, what: str, check: Callable[[], object]) -> None:
        self.stage.until(what, check, within=PATIENCE)

    def type(self, line: str, given: str = "") -> list[str]:
        """Run a command, and show its output; return the lines."""
        self.stage.command(line)
        program, *words = shlex.split(line)
        done = subprocess.run(
            [*_PYTHON[program], *words],
            check=False,
            input=given,
            env={**os.environ, **self._environ, "COLUMNS": "100", "PYTHONPATH": _HERE},
            capture_output=True,
            text=True,
        )
        said = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        for one in said:
            self.stage.say(one.rstrip())
        return said

    def said(self, text: str) -> int:
        """Return how often a pattern is in the output of the workers."""
        logs = self.main.said() + self.other.said()
        return len(re.findall(text, logs))

    def lose_worker(self) -> bool:
        """Kill the second worker if it has a frame; return whether it was killed."""
        os.kill(self.other.pid, signal.SIGSTOP)  # it keeps its frame meanwhile
        if sum(item.is_leased for item in self.items("frames")) < 2:
            os.kill(self.other.pid, signal.SIGCONT)
            return False
        self.other.kill()
        return True

    def items(self, queue: str) -> list[Item]:
        """Return the items of a queue."""

        async def ask() -> list[Item]:
            async with QueueClient(self.url, attempts=8) as client:
                return await client.items(queue)

        return asyncio.run(ask())

    def until_dead(self, count: int) -> None:
        self.until("it is dead", lambda: len(self.items("frames-dead")) == count)

    def rendered(self) -> int:
        return len(list(self.pictures.glob("*.png")))

    def until_rendered(self, count: int) -> None:
        self.until("pictures", lambda: self.rendered() == count)
        self.stage.say(f"{count} pictures are in the folder.")

    def server(self) -> int:
        """Return the process id of the queue server."""
        return int(_SERVER.findall(self.main.said())[-1])


def tell(stage: Stage) -> Farm:
    """Run the story; return the farm."""
    stage.chapter("Two workers make a film")
    farm = Farm(stage)
    farm.type(f"python -m leasequeue film sea {FILM} 64x48")
    farm.until_rendered(12)
    _lost_worker(farm)
    _dead_frames(farm)
    _killed_server(farm)
    _mended(farm)
    stage.chapter("Changes that the server rejects")
    farm.type("dlq queues lent update frames-dead --dead-queue frames")
    farm.type("dlq queues lent delete frames-dead --yes")
    return farm


def _lost_worker(farm: Farm) -> None:
    stage = farm.stage
    stage.chapter("A worker is killed while it renders")
    farm.type(f"python -m leasequeue film slow {SLOW} 360x240")
    farm.until("both workers have a frame", farm.lose_worker)
    stage.say("One worker was killed (kill -9). Its lease expires, and the frame")
    stage.say("returns to the end of the queue.")
    farm.until_rendered(18)
    again = farm.said(r"slow-\d+ rendered, attempt 2")
    stage.say(f"{again} frame took two attempts. No frame was lost.")


def _dead_frames(farm: Farm) -> None:
    stage = farm.stage
    stage.chapter("Frames that cannot be rendered")
    farm.type(
        """dlq produce frames --reference sea-012 '{"film":"sea","number":12,"""
        """"width":"64","height":48}'"""
    )
    farm.until_dead(1)
    stage.say("Its width is text: the worker declared it dead at once.")
    farm.type("python -m leasequeue film poster 1 9000x9000")
    farm.until_dead(2)
    tries = farm.said(r"poster-000, attempt \d: 9000 x 9000 is more than")
    stage.say(f"Too large for this machine: dead after {tries} attempts.")
    farm.type("dlq queues lent items frames-dead")


def _killed_server(farm: Farm) -> None:
    stage = farm.stage
    stage.chapter("The server is killed")
    before, seen = farm.server(), farm.items("frames-dead")
    os.kill(before, signal.SIGKILL)
    farm.until("another server", lambda: farm.server() != before)
    same = farm.items("frames-dead") == seen
    stage.say("It was killed (kill -9), and the farm has started another one.")
    stage.say(f"The dead frames are {'unchanged' if same else 'CHANGED'}.")


def _mended(farm: Farm) -> None:
    stage = farm.stage
    stage.chapter("The operator repairs dead frames and requests them again")
    body, location = farm.type("dlq lease frames-dead --raw")
    id_ = location.split()[0]
    mended = body.replace('"64"', "64")
    farm.type("dlq produce frames --reference sea-012 --file -", given=mended)
    farm.type(f"dlq complete frames-dead {id_}")
    farm.type("python -m leasequeue again 90x90")
    farm.until_rendered(20)
    farm.type("dlq queues lent items frames-dead")


def main() -> int:
    """Run the story; at a terminal, keep the farm running afterwards."""
    with Stage() as stage:
        farm = tell(stage)
        if sys.stdout.isatty() and "--once" not in sys.argv:
            stage.chapter("The farm keeps running until Ctrl-C. Try:")
            stage.say(f"export DLQ_SERVER={farm.url}")
            stage.say("dlq queues lent")
            stage.say("dlq produce frames 'not a frame' --reference mine")
            stage.say("dlq queues lent items frames-dead")
            with suppress(KeyboardInterrupt):
                signal.pause()
        return farm.main.stop()


if __name__ == "__main__":
    sys.exit(main())
