"""
What the tests with other people's clients share.

A `Shop` is an application on a real framework, in processes of its own; so is `dlq`
beside it, which can be killed at any step of its work.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from msgspec import Struct

from deadletter.cli import drain, replay
from deadletter.cli import letters as show
from deadletter.cli import replay_care as way_back
from deadletter.cli.app import ExitCode, run
from deadletter.testing.fakes import eventually
from deadletter.wiring import foreign as foreign_servers
from deadletter.wiring.foreign import opened_foreign
from servers import Missing, Server
from servers.fixtures import do_without
from servers.node import HERE as SCRIPTS
from servers.node import HOME, Node, connection

SHOPS = Path(__file__).parents[1] / "intake" / "shops"
PATIENCE = 60.0  # seconds for a worker to start and to work
KILLS = 20
ALREADY_IMPORTED = (drain, replay, show, way_back)  # or every child would have to
_OURS = f"{os.sep}deadletter{os.sep}"


class System(Struct, frozen=True, kw_only=True):
    """A framework as its users have it: its shop, its dead place, its worker."""

    framework: str  # its Python package
    module: str  # of its shop
    place: str  # that is drained
    home: str | None = None  # named with --to; None: its letters know
    worker: tuple[str, ...]  # words after `python -m`; SERVER is its URL
    options: str = ""  # of the server's URL


class Addressed(Protocol):
    """What a shop has to know of its broker."""

    @property
    def url(self) -> str:
        """Its URL."""


class Shop:
    """An application on a framework, in processes of its own."""

    def __init__(
        self, framework: str, server: Addressed, folder: Path, module: str = "", kind: str = ""
    ) -> None:
        if find_spec(framework) is None:
            do_without(Missing(f"{framework} is not installed: make setup"))
        self.module = module or f"{framework}_shop"
        self.url = server.url
        self.folder = folder
        self.broken = folder / "broken"
        self.office = f"sqlite:///{folder / 'office.db'}"
        self._environment = {
            **os.environ,
            "SHOP": str(folder),
            "SHOP_URL": server.url,
            "SHOP_KIND": kind,
            "PYTHONPATH": str(SHOPS),
        }

    def send(self, *orders: str) -> None:
        """Have the application ask for a task per order, each in a millisecond of its own."""
        each = f"[(shop.send(order), time.sleep(0.003)) for order in {list(orders)}]"
        self._run(sys.executable, "-c", f"import time, {self.module} as shop; {each}")

    def command(self, *words: str) -> list[str]:
        """The command that starts a worker."""
        named = (self.url if word == "SERVER" else word for word in words)
        return [sys.executable, "-m", *named]

    @contextmanager
    def worker(self, *words: str) -> Iterator[None]:
        """A worker of the framework, as its users start it."""
        with self._beside("worker.log", *self.command(*words)):
            yield

    @contextmanager
    def _beside(self, name: str, *command: str) -> Iterator[None]:
        """A process until the block ends; what it says is in a file."""
        with (self.folder / name).open("a") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
            )
            try:
                yield
            finally:
                process.terminate()
                try:
                    process.wait(30)
                finally:
                    process.kill()

    def says(self, *words: str) -> tuple[int, str]:
        """The exit code of `dlq`, and all that it says to a person."""
        code, said = self._live(words, as_json=False)
        return code, "\n".join(said)

    @contextmanager
    def following(self, *words: str) -> Iterator[None]:
        """`dlq drain --follow` in a process of its own."""
        words = ("--url", self.office, "drain", *words, "--follow")
        with self._beside("follow.log", sys.executable, "-m", "deadletter.cli", *words):
            yield

    def dlq(self, *words: str) -> Any:
        """What `dlq` says, on an office of the test's own."""
        code, said = self._live(words)
        assert code == 0, f"{words}: exit code {code}: {said}"
        return [json.loads(line) for line in said if line.startswith("{")]

    def steps(self, *words: str) -> int:
        """Count the steps that a command takes to its end."""
        code, said = self._live(words, die_at=0)
        assert code == 0, f"{words}: exit code {code}: {said}"
        return int(said[-1])

    def dies(self, step: int, *words: str) -> bool:
        """Kill a command with `kill -9` at a step; whether it got there."""
        return self._live(words, die_at=step)[0] == -signal.SIGKILL

    def _live(
        self, words: Sequence[str], die_at: int = -1, *, as_json: bool = True
    ) -> tuple[int, list[str]]:
        said = self.folder / "said"
        words = ["--url", self.office, *(["--json"] if as_json else ()), *words]
        with warnings.catch_warnings(action="ignore"):  # whoever forks has threads
            child = os.fork()
        if not child:
            try:
                _live(words, said, die_at)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), said.read_text().splitlines()

    def letters(self, query: str = "") -> list[dict[str, Any]]:
        """The letters of the office, as `dlq list` shows them."""
        found = self.dlq("list", *([query] if query else []), "--limit", "1000")
        return [one for one in found if "id" in one]

    def charged(self) -> list[str]:
        """The orders that were done, as often as they were."""
        return self._lines("charged")

    def tried(self) -> Counter[str]:
        """How often a worker has tried each order."""
        return Counter(self._lines("tried"))

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().split() if file.exists() else []

    async def until_charged(self, count: int) -> list[str]:
        """Wait until there are as many charges."""
        await eventually(lambda: len(self.charged()) >= count, within=PATIENCE)
        return self.charged()

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            words,
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.folder,
            env=self._environment,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout


class NodeShop(Shop):
    """An application on BullMQ, in processes of Node."""

    def __init__(self, node: Node, server: Server, folder: Path) -> None:
        super().__init__("redis", server, folder)
        self._environment["BULLMQ_HOME"] = f"{HOME}/"
        self._node = str(node.program)
        self._told = {**connection(server.url), "queue": "shop", "folder": str(folder)}

    def send(self, *orders: str) -> None:
        self._run(*self.command(json.dumps({**self._told, "orders": orders})))

    def command(self, *words: str) -> list[str]:
        told = words or (json.dumps(self._told),)
        return [self._node, str(SCRIPTS / "shop.mjs"), *told]


def _live(words: Sequence[str], said: Path, die_at: int) -> None:
    """
    Run `dlq` and exit with its code; with `kill -9` at a step, if there is one.

    A step is a call of one of our functions since `dlq` talks to the other server. The
    last line that is said is how many there were.
    """
    steps = 0
    os.chdir(said.parent)  # where settings may be

    def step(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal steps
        if event == "call" and _OURS in frame.f_code.co_filename:
            steps += 1
            if steps == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(*words: Any, **more: Any) -> Any:
        threading.setprofile(step)
        sys.setprofile(step)
        return opened_foreign(*words, **more)

    for surface in (drain, foreign_servers) if die_at >= 0 else ():
        surface.opened_foreign = counted  # type: ignore[attr-defined]
    with said.open("w") as out, redirect_stdout(out), redirect_stderr(out):
        code = run(words)
        sys.setprofile(None)
        if die_at >= 0:
            print(steps, file=out)
    os._exit(code)


def killed_everywhere(shop: Shop, *words: str) -> int:
    """Kill a command at its steps, from the first one on; how often it died."""
    steps = shop.steps(*words)
    # Some more than needed: a command that waits less has fewer steps.
    last = KILLS + 3
    points = (max(1, steps * number // (last + 1)) for number in range(1, last + 1))
    return sum(shop.dies(point, *words) for point in points)


async def dead(shop: Shop, system: System, foreign: Any, orders: Sequence[str]) -> None:
    """Have a worker of the framework fail tasks until all of them are dead."""
    shop.broken.touch()
    shop.send(*orders)
    await died(shop, system, foreign, len(orders))


async def died(shop: Shop, system: System, foreign: Any, count: int) -> None:
    """Have a worker of the framework fail what is in its queue."""
    place = foreign.drain(system.place)

    async def are_dead() -> bool:
        return bool(await place.depth() >= count)

    with shop.worker(*system.worker):
        await eventually(are_dead, within=PATIENCE)


def send_back(shop: Shop, system: System, query: str = "is:pending") -> None:
    """Replay letters to where they came from."""
    shop.dlq("replay", query, "--through", shop.url, *homeward(system), "--yes")


def homeward(system: System) -> tuple[str, ...]:
    """Words that name the queue letters go to, where they do not know it."""
    return () if system.home is None else ("--to", system.home)


def resume_all(shop: Shop) -> None:
    """Take over every replay whose process was killed."""
    for campaign in shop.dlq("replay", "status", "--limit", "1000"):
        if campaign.get("state") == "running" and _has_unsent(campaign):
            words = ("--through", shop.url, "--take-over")
            shop.dlq("replay", "resume", campaign["id"], *words)


def _has_unsent(campaign: dict[str, Any]) -> bool:
    counts = campaign.get("counts", {})
    return any(counts.get(name) for name in ("planned", "sending", "waiting"))


async def live_and_die(shop: Shop, system: System) -> list[dict[str, Any]]:
    """
    Take orders through all that a letter goes through; its letters after one death.

    They fail, are drained, sent back, fail again, return to their letters, are sent
    back, and are done: each once, oldest first.
    """
    orders = [f"o-{number}" for number in range(3)]
    server = shop.url + system.options
    async with opened_foreign(server) as foreign:
        await dead(shop, system, foreign, orders)
        [drained] = shop.dlq("drain", server, system.place)
        assert (drained["found"], drained["new"]) == (3, 3)
        first = [shop.dlq("show", one["id"])[0] for one in shop.letters()]

        send_back(shop, system)
        await died(shop, system, foreign, 3)
        [again] = shop.dlq("drain", server, system.place)
        assert (again["found"], again["new"]) == (3, 0)
        second = shop.letters("is:pending")
        assert {one["id"] for one in second} == {one["id"] for one in first}
        assert [one["replays"] for one in second] == [1, 1, 1]
        deaths = [shop.dlq("show", one["id"])[0]["story"] for one in second]
        runs = [one["attempt"] for story in deaths for one in story if one["attempt"]]
        assert {run.get("generation", 0) for run in runs} == {0, 1}
        assert {o["outcome"] for o in outcomes(shop)} == {"failed"}

        shop.broken.unlink()
        send_back(shop, system)
        with shop.worker(*system.worker):
            charged = await shop.until_charged(3)
            assert charged == orders
        assert await foreign.drain(system.place).depth() == 0
    assert len(shop.letters()) == 3
    return first


async def halt_and_go_on(shop: Shop, system: System, outcome: str) -> None:
    """
    Take orders through a canary that halts, and through one that does not.

    Beside a real worker and `dlq drain --follow`: the first copies die again, return
    to their letters and stop the replay. Once the cause is fixed all have the outcome.
    """
    orders = [f"o-{number}" for number in range(6)]
    settings = f'[sources.shop]\nurl = "{shop.url}{system.options}"\n'
    (shop.folder / "deadletter.toml").write_text(settings)
    replay = ("replay", "is:pending", "--through", "shop", *homeward(system), "--yes")
    shop.broken.touch()
    shop.send(*orders)
    async with opened_foreign(shop.url + system.options) as foreign:
        place = foreign.drain(system.place)

        async def are_dead() -> bool:
            return await place.depth() == len(orders)

        with shop.worker(*system.worker):
            await eventually(are_dead, within=PATIENCE)
            [drained] = shop.dlq("drain", "shop", system.place)
            assert drained["new"] == len(orders)
            with shop.following("shop", system.place):
                halted = shop.says(*replay, "--canary", "2", "--presume", "60s")
                await eventually(
                    lambda: len(shop.letters("is:pending")) == len(orders), within=PATIENCE
                )
                _check_halted(shop, *halted)
                shop.broken.unlink()
                presume = "20s" if outcome == "confirmed" else "1s"
                care = ("--canary", "2", "--presume", presume, "--wait", "60")
                code, said = shop.says(*replay, *care)
        assert code == 0, said
        assert await place.depth() == 0
    [latest, *_] = shop.dlq("replay", "status")
    assert (latest["state"], latest["counts"]) == ("done", {outcome: len(orders)}), said
    handled = {"confirmed": "6  handled", "presumed": "6  presumed handled: they did"}
    assert handled[outcome] in said
    assert sorted(shop.charged()) == orders
    assert len(shop.letters("is:replayed")) == len(shop.letters()) == len(orders)


def _check_halted(shop: Shop, code: int, said: str) -> None:
    """Every sentence is true, and what is to be typed next can be typed."""
    [halted] = shop.dlq("replay", "status")
    failed = re.search(r"([12])  failed again", said)
    assert failed is not None, said
    assert (code, halted["state"]) == (ExitCode.CHECK_FAILED, "paused"), said
    assert halted["counts"] == {"failed": 2, "planned": 4}
    assert "4  not sent yet" in said
    why = r"It stopped by itself: [12] of (the first )?2 failed again, where 10% may\."
    assert re.search(why, said), said
    resume = f"dlq --url {shop.office} replay resume {halted['id']}"
    assert f"Send the rest (4 letters): {resume}\n" in said
    [again] = re.findall(r"^  dlq (.* replay .*)$", said, re.MULTILINE)
    [plan] = shop.dlq(*shlex.split(again)[2:], "--dry-run")
    assert (plan["sendable"], plan["through"]) == (int(failed[1]), "shop")
    shop.dlq("replay", "cancel", halted["id"])


def outcomes(shop: Shop) -> list[dict[str, Any]]:
    """What became of each copy of the latest replay."""
    [latest, *_] = shop.dlq("replay", "status")
    report: list[dict[str, Any]] = shop.dlq("replay", "report", latest["id"])
    return [one for one in report if "outcome" in one]


async def survive_kills(shop: Shop, system: System) -> None:
    """Kill both ways at twenty points each: nothing is lost, all is done once."""
    orders = [f"o-{number}" for number in range(50)]
    server = shop.url + system.options
    async with opened_foreign(server) as foreign:
        await dead(shop, system, foreign, orders)
        drain = ("drain", server, system.place, "--limit", "2")
        assert killed_everywhere(shop, *drain) >= KILLS
        shop.dlq("drain", server, system.place)
        assert len(shop.letters()) == len(orders)
        assert await foreign.drain(system.place).depth() == 0

        shop.broken.unlink()
        back = ("--through", shop.url, *homeward(system), "--yes")
        replay = ("replay", "is:pending", "--limit", "2", *back)
        assert killed_everywhere(shop, *replay) >= KILLS
        resume_all(shop)
        if shop.letters("is:pending"):
            send_back(shop, system)
        assert len(shop.letters("is:replaying")) == len(orders)
        with shop.worker(*system.worker):
            await shop.until_charged(len(orders))
        assert sorted(shop.charged()) == sorted(orders)
