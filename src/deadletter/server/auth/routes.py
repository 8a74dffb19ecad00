"""The routes of access, below /api/v1."""

from typing import Any, Final

from . import sessions, tokens

routes: Final[list[Any]] = [*sessions.routes, *tokens.routes]
