"""The routes of these screens."""

from typing import Any, Final

from . import mailbox_routes

routes: Final[list[Any]] = [*mailbox_routes.routes]
