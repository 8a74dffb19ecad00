"""What must hold of every request before it is looked at more closely."""

from difflib import get_close_matches
from functools import cache
from typing import Any

from litestar import Request
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter

from .problems import Asked


def check_query(request: Request[Any, Any, Any]) -> None:
    """
    Refuse a parameter that does not exist.

    Somebody who writes `qurey=` means fewer letters, not all of them.
    """
    known = _known(request.scope["route_handler"])
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name[:40], known, 1)
            hint = f" Did you mean {near[0]}?" if near else f" Known: {_told(known)}."
            raise Asked(400, "parameter", f"there is no parameter {name[:40]!r}.{hint}")


@cache
def _known(handler: HTTPRouteHandler) -> frozenset[str]:
    fields = handler.parsed_fn_signature.parameters.items()
    return frozenset(
        field.kwarg_definition.name or name
        for name, field in fields
        if isinstance(field.kwarg_definition, QueryParameter)
    )


def _told(known: frozenset[str]) -> str:
    return ", ".join(sorted(known)) or "none"
