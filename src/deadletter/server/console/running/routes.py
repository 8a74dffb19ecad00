"""The routes of these screens."""

from typing import Any, Final

from . import access, access_acts, system, system_acts

routes: Final[list[Any]] = [
    *(*access.routes, *access_acts.routes),
    *(*system.routes, *system_acts.routes),
]
