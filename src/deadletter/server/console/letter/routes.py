"""The routes of these screens."""

from typing import Any, Final

from . import acts, comparing, editing, neighbours, page

routes: Final[list[Any]] = [
    page.show_letter,
    *acts.routes,
    *neighbours.routes,
    *editing.routes,
    *comparing.routes,
]
