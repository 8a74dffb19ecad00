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
from .groups import act_routes as group_acts
from .groups import page_routes as groups
from .letter import acts, comparing, editing, neighbours
from .letter import page as letter
from .letters import act_routes as letters_acts
from .letters import errand_routes, list_routes, palette, saved_routes, search_help
from .notices import Notices
from .overview import routes as overview
from .pages import Console, note_start
from .queues import intake_routes, lent_routes, mailbox_routes
from .repairs import routes as repairs
from .replays import routes as replays
from .report import routes as report
from .running import access, access_acts, system, system_acts
from .undo_keys import Undoing

_SCREENS: Final = (
    *(overview, groups, group_acts),
    *(list_routes, letters_acts, errand_routes, saved_routes, search_help, palette),
    *(letter, acts, neighbours, editing, comparing, repairs, replays),
    *(mailbox_routes, lent_routes, intake_routes),
    *(access, access_acts, system, system_acts, audit, report, undo),
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
