"""The routes of the console, and what its pages share."""

from importlib.metadata import version
from typing import Any, Final

from litestar import Request

from deadletter.ports import Clock

from . import assets, charts, door, undo
from .assets import load_assets
from .audit import routes as audit
from .fresh import Fresh
from .gate import environment
from .groups import routes as groups
from .letter import routes as letter
from .letters import routes as letters
from .notices import Notices
from .overview import routes as overview
from .pages import BEGAN, Console
from .queues import routes as queues
from .replays import routes as replays
from .report import routes as report
from .running import routes as running
from .undo_keys import Undoing

_SCREENS: Final = (
    *(overview, groups, letters, letter, replays, queues, running),
    *(audit, report, undo),
)
"""The modules of all screens, each with its `routes`."""


def routes() -> list[Any]:
    """Return all routes of the console."""
    return [route for module in (assets, door, *_SCREENS) for route in module.routes]


def open_console(clock: Clock) -> Console:
    """Read templates and files of the console."""
    found = load_assets()
    names = {"asset": found.url, "charts": charts}
    return Console(
        environment(names), found, Notices(), Undoing(clock), Fresh(clock), version("deadletter")
    )


def note_start(request: Request[Any, Any, Any]) -> None:
    """Note when a page was asked for; its foot says how long it took."""
    clock = request.app.state.context.clock
    request.scope["state"][BEGAN] = clock.monotonic()


async def note_end(request: Request[Any, Any, Any]) -> None:
    """Forget shared values after an act: whoever did something wants to see it."""
    if request.method != "GET":
        console: Console = request.app.state.console
        console.fresh.forget()
