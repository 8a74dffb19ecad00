"""
Pictures of a terminal: real commands, on a shop whose every order is the same.

The shop of `examples/shop` runs in virtual time with fixed dice, so that the same
letters die at the same moments wherever this is done.
"""

# ruff: noqa: INP001 -- a script's module, not a package

import asyncio
import io
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import ModuleType
from unittest import mock

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from deadletter import App
from deadletter.cli.desk import Desk
from deadletter.cli.groups import groups
from deadletter.cli.letters import show
from deadletter.cli.overview import overview
from deadletter.core.letter import By, DeadLetter
from deadletter.office.letters import Letters
from deadletter.office.office import Office
from deadletter.ports import Clock, Dice, Engine
from deadletter.testing.virtual_time import SeededDice, VirtualClock, run_virtual
from deadletter.wiring.engines import open_engine

SHOP = Path(__file__).parents[1] / "examples" / "shop" / "shop.py"
WIDTH = 100
# 412 dead letters, which are three problems.
ORDERS = ("bug",) * 274 + ("broke",) * 126 + ("poison",) * 12 + ("plain",) * 300

Picture = Callable[[Desk], Awaitable[None]]


def draw() -> dict[str, str]:
    """All pictures, as SVG by file name."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    return run_virtual(_drawn(), seed=1)


async def _drawn() -> dict[str, str]:
    clock = VirtualClock()
    dice = SeededDice("pictures", clock)
    with mock.patch("deadletter.handler_registry.process_name", return_value="web-1:7"):
        letters = await _deaths(clock, dice)
    engine = await open_engine("memory://", clock=clock, dice=dice)
    assert engine.letters is not None
    await engine.letters.keep(letters)
    letter = next(one for one in letters if one.head.error_name == "KeyError")
    anna = By("anna@desk", "no VAT rate for new countries; fix is in 1.8")
    await Letters(engine.letters, clock).review([letter.id], anna)

    async def one_letter(desk: Desk) -> None:
        await show(letter.id, desk=desk)

    short = letter.id[:10]
    pictures: dict[str, tuple[str, Picture]] = {
        "dlq.svg": ("dlq", lambda desk: overview(desk=desk)),
        "groups.svg": ("dlq groups", lambda desk: groups(desk=desk)),
        "show.svg": (f"dlq show {short}", one_letter),
    }
    return {
        name: await _picture(command, picture, _Desk(engine, clock, dice))
        for name, (command, picture) in pictures.items()
    }


async def _deaths(clock: Clock, dice: Dice) -> list[DeadLetter]:
    """Let the shop run for three hours, and bring its letters."""
    shop = _shop()
    app = App("memory://", version="1.7", clock=clock, dice=dice)
    app.handler("orders", policy=shop.PATIENT)(shop.charge)
    stop = asyncio.Event()
    working = asyncio.create_task(app.work(stop))
    random = Random(7)  # noqa: S311 -- must repeat
    for number, kind in enumerate(random.sample(ORDERS, len(ORDERS))):
        await asyncio.sleep(random.uniform(0, 30))
        await app.send("orders", _body(kind, number, random), headers={"tenant": "eu"})
    await asyncio.sleep(240)
    stop.set()
    await working
    store = await app.letters()
    page = await store.find(limit=1000)
    letters = await store.get([head.id for head in page.heads])
    await app.close()
    return list(letters)


def _shop() -> ModuleType:
    """The example, under a name without a directory."""
    shop = ModuleType("shop")
    exec(compile(SHOP.read_text(), "shop.py", "exec"), shop.__dict__)  # noqa: S102 -- it is ours
    return shop


def _body(kind: str, number: int, random: Random) -> object:
    if kind == "poison":
        return b'{"id": "o-%d", "amount": \xff' % number
    return {"id": f"o-{10_000 + number}", "amount": random.randrange(500), "kind": kind}


class _Desk(Desk):
    """A desk before an engine that is open already, with a camera."""

    def __init__(self, engine: Engine, clock: Clock, dice: Dice) -> None:
        super().__init__(actor="anna@desk")
        self.url = "memory://"  # as if set elsewhere: nobody types it
        self.clock, self.dice = clock, dice  # type: ignore[assignment]
        self.out = self.err = Console(
            record=True,
            width=WIDTH,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._engine = engine

    @asynccontextmanager
    async def office(self, *, make: bool = False) -> AsyncIterator[Office]:
        """The office of the pictures."""
        yield Office(self._engine, self.clock, self.dice)


async def _picture(command: str, picture: Picture, desk: _Desk) -> str:
    desk.out.print(Text.assemble(("$ ", "dim"), (command, "bold")))
    await picture(desk)
    desk.out.print()  # the last line is cut in half without one below
    svg = desk.out.export_svg(title="", code_format=_FORMAT, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


# No fonts from elsewhere: pages that show the picture would not load them anyway.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
_FORMAT = _FORMAT.replace("Fira Code, monospace", "Fira Code, Menlo, Consolas, monospace")
