"""The routes of the console, and what its pages share."""

from importlib.metadata import version
from typing import Any, Final

from deadletter.ports import Clock

from . import assets, door, overview, provider_door, undo
from .assets import load_assets
from .gate import environment
from .groups import routes as groups
from .letter import routes as letter
from .letters import routes as letters
from .notices import Notices
from .pages import Console, note_start
from .queues import routes as queues
from .replays import routes as replays
from .running import routes as running
from .undo_keys import Undoing

_SCREENS: Final = (overview, groups, letters, letter, replays, queues, running, undo)
"""The modules of all screens, each with its `routes`."""


def routes() -> list[Any]:
    """Return all routes of the console."""
    return [route for module in (assets, door, provider_door, *_SCREENS) for route in module.routes]


def open_console(clock: Clock) -> Console:
    """Read templates and files of the console."""
    found = load_assets()
    names = {"asset": found.url}
    return Console(environment(names), found, Notices(), Undoing(clock), version("deadletter"))


__all__ = ["note_start", "open_console", "routes"]
