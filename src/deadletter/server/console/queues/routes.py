"""The routes of these screens."""

from typing import Any, Final

from . import intake_routes, lent_routes, mailbox_routes

routes: Final[list[Any]] = [*mailbox_routes.routes, *lent_routes.routes, *intake_routes.routes]
