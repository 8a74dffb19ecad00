"""The routes of the console, and what its pages share."""

from importlib.metadata import version
from typing import Any, Final

from litestar import Litestar, Request

from deadletter.ports import Clock

from . import assets, charts, door, provider_door, undo
from .assets import load_assets
from .audit import routes as audit
from .errands import Errands
from .fresh import Fresh
from .gate import environment
from .groups import routes as groups
from .letter import routes as letter
from .letters import routes as letters
from .notices import Notices
from .overview import routes as overview
from .pages import Console, note_start
from .queues import routes as queues
from .repairs import routes as repairs
from .replays import routes as replays
from .report import routes as report
from .running import routes as running
from .undo_keys import Undoing

_SCREENS: Final = (
    *(overview, groups, letters, letter, repairs, replays, queues, running),
    *(audit, report, undo),
)
"""The modules of all screens, each with its `routes`."""


def routes() -> list[Any]:
    """Return all routes of the console."""
    return [route for module in (assets, door, provider_door, *_SCREENS) for route in module.routes]


def open_console(clock: Clock) -> Console:
    """Read templates and files of the console."""
    found = load_assets()
    names = {"asset": found.url, "charts": charts}
    return Console(
        environment(names),
        found,
        Notices(),
        Undoing(clock),
        Errands(clock),
        Fresh(clock),
        version("deadletter"),
    )


async def note_end(request: Request[Any, Any, Any]) -> None:
    """Forget shared values after an act: whoever did something wants to see it."""
    if request.method != "GET":
        console: Console = request.app.state.console
        console.fresh.forget()


async def close_console(app: Litestar) -> None:
    """End what goes on in the server for pages, after the step that is under way."""
    console: Console = app.state.console
    await console.errands.close()


__all__ = ["close_console", "note_end", "note_start", "open_console", "routes"]
