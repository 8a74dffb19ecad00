"""
The shop at work: sends orders, lets them fail, and shows what becomes of them.

Needs nothing but deadletter itself; everything it makes is in `.demo/`.
"""

import asyncio
import os
import random
import shutil
import sys
import time
from collections import deque
from pathlib import Path

from board import Board
from rich.console import Console
from rich.live import Live

from deadletter import App

PLACE = Path(".demo")
SEED = 7
SCRIPT = [  # when, what happens, how often, what the person watching should know
    (0, "plain", 40, "Orders come in. Most are charged at once."),
    (3, "flaky", 8, "The bank is slow: some orders time out, are retried, recover."),
    (6, "broke", 6, "Some customers are broke. Trying again is pointless: buried."),
    (9, "poison", 3, "Bodies that are not JSON. Kept as undecodable, byte for byte."),
    (11, "bug", 5, "A bug: KeyError. Three attempts each, then dead letters."),
    (14, "outage", 40, "The carrier is down. The brake stops fetching: no flood."),
    (22, "back", 0, "The carrier is back. A probe goes through; parcels follow."),
    (26, "killer", 1, "An order that kills its process, among 30 innocent ones."),
    (40, "end", 0, "That is all. What died is in the office; have a look."),
]


async def act(app: App, what: str, count: int, draw: random.Random) -> None:
    """Let something happen to the shop."""
    if what == "outage":
        (PLACE / "outage").touch()
        cities = ["Lisbon", "Oslo", "Kyoto", "Lima"]
        orders = range(1000, 1000 + count)
        await app.send_many(
            "shipments",
            [{"order": f"o-{number}", "city": draw.choice(cities)} for number in orders],
        )
    elif what == "back":
        (PLACE / "outage").unlink(missing_ok=True)
    elif what == "poison":
        for i in range(count):
            await app.send("orders", b'{"id": "o-%d", "amount": \xff' % i)
    elif what != "end":
        if what == "killer":
            await app.send_many("orders", [order("plain", draw) for _ in range(30)])
        for _ in range(count):
            await app.send("orders", order(what, draw), headers={"tenant": "eu"})


def order(kind: str, draw: random.Random) -> dict[str, object]:
    """An order of one kind."""
    number = draw.randrange(10_000, 99_999)
    return {"id": f"o-{number}", "amount": draw.randrange(5, 500), "kind": kind}


async def demo(console: Console, *, speed: float) -> None:
    """Play the script; on a terminal, live."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    app = App(f"sqlite:///{PLACE}/shop.db")
    draw = random.Random(SEED)
    worker = await start_worker()
    board = Board(app, PLACE / "events.jsonl")
    script = deque(SCRIPT)
    began = time.monotonic()
    try:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while script or not board.is_quiet:
                elapsed = (time.monotonic() - began) * speed
                if script and elapsed >= script[0][0]:
                    _, what, count, board.caption = script.popleft()
                    if not console.is_terminal:
                        console.print(f"- {board.caption}")
                    await act(app, what, count, draw)
                await board.look()
                if console.is_terminal:
                    live.update(board.view(console.width), refresh=True)
                if not script and elapsed > SCRIPT[-1][0] + 30:
                    break
                await asyncio.sleep(0.25)
        console.print(board.view(console.width) if not console.is_terminal else "")
        console.print(board.farewell(PLACE))
    finally:
        worker.terminate()
        await worker.wait()
        await app.close()


async def start_worker() -> asyncio.subprocess.Process:
    """The handlers, in processes that may die: that is part of the show."""
    environ = {
        **os.environ,
        "SHOP_DIR": str(PLACE),
        "SHOP_EVENTS": str(PLACE / "events.jsonl"),
        "PYTHONPATH": str(Path(__file__).parent),
    }
    with (PLACE / "worker.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "deadletter.cli"),
            *("work", "shop:app", "--processes", "2"),
            env=environ,
            stdout=log,
            stderr=log,
        )


def main() -> None:
    """Run the demo and end like a program should."""
    console = Console()
    speed = float(os.environ.get("DEMO_SPEED", "1"))
    try:
        asyncio.run(demo(console, speed=speed))
    except KeyboardInterrupt:
        console.print("\nstopped")


if __name__ == "__main__":
    main()
