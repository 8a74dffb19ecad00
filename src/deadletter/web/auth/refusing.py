"""What is refused before anybody is asked who they are."""

from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import ClientException, PermissionDeniedException

from .binding import is_local
from .minting import shows_token

Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]


def refuse_tokens_in_urls(connection: Connection) -> None:
    """400 for a URL with a token in it, whoever would be let in otherwise."""
    texts = [connection.scope["path"]]
    if query := connection.scope.get("query_string", b"").decode("latin-1"):
        texts += (query, unquote(query))
    if shows_token(texts):
        raise ClientException(
            "a token was in the URL, where logs and histories keep it: revoke it, and"
            " send tokens in the Authorization header"
        )


def refuse_other_sites(connection: Connection) -> None:
    """
    With access off, only what is asked of this machine by itself is answered.

    A page from anywhere can have the browser it is shown in ask for us: under a name
    of its own that leads here, which `Host` tells, or across, which `Origin` tells.
    """
    headers = connection.headers
    if not _is_from_here(headers.get("host", ""), headers.get("origin")):
        raise PermissionDeniedException(
            "access is off, so only this machine is answered, asked as localhost or"
            " 127.0.0.1 and by no other site"
        )


@lru_cache(64)
def _is_from_here(host: str, origin: str | None) -> bool:
    try:
        asked = urlsplit(f"//{host}").hostname or ""
        is_across = origin is not None and urlsplit(origin).netloc != host
    except ValueError:  # that is no URL
        return False
    return is_local(asked) and not is_across
