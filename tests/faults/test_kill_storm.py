"""
Workers killed with kill -9, again and again, under load.

Nothing is lost, no letter is doubled, and nobody innocent is charged out of its
attempts. `make faults` kills 200 times.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.core.failure import Reason
from deadletter.core.letter import DeadLetter
from deadletter.ports import QueueInfo

SCRIPT = Path(__file__).parent / "under_fire.py"
WORKERS = 3
SEED = 20261116


class Storm:
    """Worker processes, and somebody who kills them."""

    def __init__(self, place: Path, seed: int) -> None:
        self.kills = 0
        self._place = place
        self._draw = random.Random(seed)
        self._workers: list[subprocess.Popen[bytes]] = []

    def keep_up(self) -> None:
        """Replace whoever died."""
        self._workers = [w for w in self._workers if w.poll() is None]
        while len(self._workers) < WORKERS:
            with (self._place / "stderr").open("ab") as stderr:
                command = [sys.executable, str(SCRIPT), str(self._place)]
                self._workers.append(subprocess.Popen(command, stderr=stderr))

    def strike(self) -> None:
        """Kill one of them at a random moment."""
        time.sleep(self._draw.uniform(0.0, 0.25))
        victim = self._draw.choice(self._workers)
        if victim.poll() is None:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            self.kills += 1
        self.keep_up()

    def end(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self._workers:
            worker.wait(40)


@pytest.mark.faults
@pytest.mark.slow
def test_nothing_is_lost_or_doubled_however_often_workers_are_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = 200 if request.config.getoption("--long") else 25
    kinds = _kinds(60 * kills)
    asyncio.run(_send(tmp_path, kinds[: len(kinds) // 2]))
    storm = Storm(tmp_path, SEED)
    try:
        storm.keep_up()
        asyncio.run(_send(tmp_path, kinds[len(kinds) // 2 :], len(kinds) // 2))
        while storm.kills < kills:
            storm.strike()
        queue = asyncio.run(_drained(tmp_path, storm, within=120))
    finally:
        storm.end()

    letters = asyncio.run(_letters(tmp_path))
    _judge(kinds, letters, queue, (tmp_path / "effects").read_text(), storm.kills)


def _kinds(count: int) -> list[str]:
    draw = random.Random(SEED)
    kinds = draw.choices(["ok", "slow", "bad"], weights=[80, 15, 5], k=count)
    for place in draw.sample(range(count), k=4):
        kinds[place] = "poison"
    return kinds


async def _send(place: Path, kinds: list[str], first: int = 0) -> None:
    async with App(f"sqlite:///{place}/fire.db") as app:
        for number, kind in enumerate(kinds, first):
            body = {"number": str(number), "kind": kind}
            await app.send("work", body, id=f"m-{number}")


async def _drained(place: Path, storm: Storm, *, within: float) -> QueueInfo:
    deadline = time.monotonic() + within
    async with App(f"sqlite:///{place}/fire.db") as app:
        engine = await app.engine()
        while True:
            storm.keep_up()
            (queue,) = await engine.broker.queues()
            left = queue.ready + queue.delayed + queue.claimed + queue.suspects
            if not left:
                return queue
            assert time.monotonic() < deadline, f"STUCK: {queue}"
            await asyncio.sleep(0.1)


async def _letters(place: Path) -> list[DeadLetter]:
    async with App(f"sqlite:///{place}/fire.db") as app:
        store = await app.letters()
        found: list[DeadLetter] = []
        after = None
        while True:
            page = await store.find(limit=500, after=after)
            found.extend(await store.get([head.id for head in page.heads]))
            after = page.after
            if after is None:
                return found


def _judge(
    kinds: list[str], letters: list[DeadLetter], queue: QueueInfo, effects: str, kills: int
) -> None:
    by_message = Counter(letter.head.message_id for letter in letters)
    dead = {int(name.removeprefix("m-")): name for name in by_message}
    done = {int(line.split()[0]) for line in effects.splitlines() if "done" in line}

    lost = set(range(len(kinds))) - done - set(dead)
    doubled = [name for name, count in by_message.items() if count > 1]
    charged = [n for n in dead if kinds[n] in ("ok", "slow")]
    guilty = [letter for letter in letters if letter.head.reason is Reason.WORKER_LOST]

    assert lost == set(), f"LOST after {kills} kills"
    assert doubled == [], "DOUBLE LETTER"
    assert charged == [], "CHARGED INNOCENT"
    assert {kinds[n] for n in dead} == {"bad", "poison"}
    assert sorted(int(g.head.message_id[2:]) for g in guilty) == [
        n for n, kind in enumerate(kinds) if kind == "poison"
    ]
    # What came in went out, by the engine's own count.
    assert queue.tally["sent"] == len(kinds)
    assert sum(queue.tally.values()) == 2 * len(kinds)
