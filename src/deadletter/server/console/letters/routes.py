"""The routes of these screens."""

from typing import Any, Final

routes: Final[list[Any]] = []
