"""The routes of these screens."""

from typing import Any, Final

from . import act_routes, errand_routes, list_routes, palette, saved_routes, search_help

_MODULES: Final = (list_routes, act_routes, errand_routes, saved_routes, search_help, palette)
routes: Final[list[Any]] = [route for module in _MODULES for route in module.routes]
