"""
The shop at work: sends orders, lets them fail, and shows what becomes of them.

`dlq serve` runs beside it, so that you can look after the failures in the web console: open
the link, and follow the steps. On a terminal it stays until Ctrl-C. Needs nothing but
deadletter itself; everything it makes is in `.demo/`.
"""

import asyncio
import os
import random
import shutil
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path

from board import Board
from guide import FIXED_IN, Guide
from processes import Server, Workers
from rich.console import Console, Group, RenderableType
from rich.live import Live

from deadletter import App

PLACE = Path(".demo")
SEED = 7
BROKEN = "1.7"
PATIENCE = 30.0  # seconds to wait after the script for the mailboxes to be empty
SCRIPT = [  # when, what happens, how often, what the person watching should know
    (0, "plain", 40, "Orders come in. Most are charged at once."),
    (3, "flaky", 8, "The bank is slow: some orders time out, are retried, recover."),
    (6, "broke", 6, "Some customers are broke. Trying again is pointless: buried."),
    (9, "poison", 3, "Bodies that are not JSON. Kept as undecodable, byte for byte."),
    (11, "bug", 12, "A bug: KeyError. Three attempts each, then dead letters."),
    (14, "outage", 40, "The carrier is down. The brake stops fetching: no flood."),
    (22, "back", 0, "The carrier is back. A probe goes through; parcels follow."),
    (26, "killer", 1, "An order that kills its process, among 30 innocent ones."),
    (36, "deploy", 0, f"{FIXED_IN} is deployed: it has the fix. Its letters can be replayed."),
    (42, "end", 0, "That is all. What died is in the office; have a look."),
]


async def act(app: App, workers: Workers, what: str, count: int, draw: random.Random) -> None:
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
    elif what == "deploy":
        await workers.deploy(FIXED_IN)
    elif what != "end":
        if what in {"bug", "killer"}:  # among innocent ones
            await app.send_many("orders", [order("plain", draw) for _ in range(30)])
        for _ in range(count):
            await app.send("orders", order(what, draw), headers={"tenant": "eu"})


def order(kind: str, draw: random.Random) -> dict[str, object]:
    """An order of one kind."""
    number = draw.randrange(10_000, 99_999)
    return {"id": f"o-{number}", "amount": draw.randrange(5, 500), "kind": kind}


async def demo(console: Console, *, speed: float) -> None:
    """Play the script; on a terminal, live, and until Ctrl-C."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(App(f"sqlite:///{PLACE}/shop.db"))
        workers = Workers(PLACE)
        await workers.start(BROKEN)
        stack.push_async_callback(workers.stop)
        server = await Server.start(PLACE, in_browser=console.is_terminal)
        if server is not None:
            stack.push_async_callback(server.stop)
        board = Board(app, PLACE / "events.jsonl")
        guide = Guide(app, server.link) if server is not None else None
        if guide is None:
            console.print(f"No console: the server did not start, see {PLACE}/server.log")
        elif not console.is_terminal:
            console.print(f"The console (the link works once): {guide.link}", soft_wrap=True)
        await play(console, app, workers, board, guide, speed=speed)
        if not console.is_terminal:
            console.print(board.title(), board.view(), board.farewell(PLACE), sep="\n")


async def play(
    console: Console, app: App, workers: Workers, board: Board, guide: Guide | None, *, speed: float
) -> None:
    """Let the script happen, and show how things stand."""
    draw = random.Random(SEED)
    script = deque(SCRIPT)
    began = time.monotonic()

    def view() -> RenderableType:
        shown = [board.title()]
        if guide is not None:
            shown.append(guide.view(brief=bool(script)))
        shown.append(board.view() if script else board.farewell(PLACE))
        return Group(*shown)

    ended = 0.0
    with Live(console=console, auto_refresh=False) as live:
        while True:
            elapsed = (time.monotonic() - began) * speed
            if script and elapsed >= script[0][0]:
                _, what, count, board.caption = script.popleft()
                if not console.is_terminal:
                    console.print(f"- {board.caption}")
                await act(app, workers, what, count, draw)
                if guide is not None:
                    guide.has_new_version |= what == "deploy"
                ended = time.monotonic()
            await board.look()
            if guide is not None:
                await guide.look()
            if console.is_terminal:
                live.update(view(), refresh=True)
            elif not script and (board.is_quiet or time.monotonic() - ended > PATIENCE):
                return
            await asyncio.sleep(0.25)


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
