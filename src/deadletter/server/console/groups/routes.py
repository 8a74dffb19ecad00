"""The routes of these screens."""

from typing import Any, Final

from . import act_routes, group_routes, list_routes

routes: Final[list[Any]] = [*list_routes.routes, *group_routes.routes, *act_routes.routes]
