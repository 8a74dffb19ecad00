"""
Hosts: where the server may listen, requests that it rejects by their host, security headers.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import ClientException, PermissionDeniedException
from litestar.types import Message, Scope

from .keys import shows_token

EVERYBODY = "*"


def bind_problem(host: str, access: bool) -> str | None:
    """Return why the server must not listen there, with access on or off; or None."""
    if access or is_local(host):
        return None
    return (
        f"serve.host is {host!a} and serve.access is off: everybody who can reach this"
        " machine could read, replay and purge. Turn access on, or listen on 127.0.0.1."
    )


def proxy_problem(proxies: Iterable[str]) -> str | None:
    """Return why one of these is not a valid proxy; or None."""
    for proxy in proxies:
        try:
            is_all = proxy.strip() == EVERYBODY or not ip_network(proxy).prefixlen
        except ValueError:
            return (
                f"serve.proxies contains {proxy!a}, which is not an address: give an"
                " address, such as 10.0.0.7, or a network, such as 10.0.0.0/24."
            )
        if is_all:
            return (
                f"serve.proxies contains {proxy!a}, so every client could forge its"
                " address, and sign-ins would not be limited: give the addresses of your"
                " proxies, such as 10.0.0.7, or their network, such as 10.0.0.0/24."
            )
    return None


def is_local(host: str) -> bool:
    """Return whether this name is the machine itself, without a lookup."""
    name = host.strip("[]").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


POLICY: Final = "content-security-policy"
PAGES: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The policy of the server's own pages: only scripts of the server run."""

# Other answers may contain bodies of messages: nothing in them may run.
_DATA: Final = (
    b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
_ALWAYS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_POLICY: Final = POLICY.encode()
_REFERRER: Final = b"referrer-policy"
_TO_US: Final = b"same-origin"
_KEPT: Final = b"cache-control"
_NEVER: Final = b"no-store"
OF_ANSWERS: Final = {**_ALWAYS, _POLICY: _DATA, _KEPT: _NEVER}
"""The security headers of an answer without headers of its own."""


async def security_headers(message: Message, _: Scope) -> None:
    """
    Add security headers to an answer; for `before_send`, which also sees errors.

    Only a response with a `max-age` may be cached. Pages may send their address to this
    server: without it, browsers do not name the origin of their forms.
    """
    if message["type"] != "http.response.start":
        return
    given = [(name.lower(), value) for name, value in message.get("headers", ())]
    named = dict(given)
    added = dict(_ALWAYS)
    if _POLICY not in named:
        added[_POLICY] = _DATA
    if named.get(_REFERRER) == _TO_US:
        added[_REFERRER] = _TO_US
    if b"max-age" not in named.get(_KEPT, b""):
        added[_KEPT] = _NEVER
    others = [one for one in given if one[0] not in added]
    message["headers"] = [*others, *added.items()]


Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]
_is_host: Final = re.compile(
    r"([a-z0-9._-]{1,255}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE
).fullmatch


def refuse_tokens_in_urls(connection: Connection) -> None:
    """Raise 400 if the URL contains a token, even for valid callers."""
    texts = [connection.scope["path"]]
    if query := connection.scope.get("query_string", b"").decode("latin-1"):
        texts += (query, unquote(query))
    if shows_token(texts):
        raise ClientException(
            "the URL contains a token, and logs and histories keep URLs: revoke the token,"
            " and send tokens in the Authorization header"
        )


def refuse_odd_hosts(scope: Scope) -> None:
    """
    Raise 400 unless a request has exactly one valid Host header.

    With several, a proxy and this server could use different ones.
    """
    hosts = _of(scope, b"host")
    is_old = scope.get("http_version") in {"1.0", "0.9"}  # where Host is optional
    if (hosts or not is_old) and (len(hosts) != 1 or not _is_host(hosts[0])):
        raise ClientException(
            "a request must have one valid Host header, such as 127.0.0.1:8418; this one"
            f" has {len(hosts)}, or a malformed one"
        )


def refuse_other_sites(scope: Scope) -> None:
    """
    Raise 403 for requests of other machines and sites, while access is off.

    A page of any site can make a browser on this machine send requests here: through a
    name of its own that resolves to 127.0.0.1, which `Host` shows, or cross-origin,
    which `Origin` shows.
    """
    hosts, origins = _of(scope, b"host"), _of(scope, b"origin")
    if not _is_from_here("".join(hosts), origins[0] if origins else None):
        raise PermissionDeniedException(
            "access is off, so only requests of this machine to localhost or 127.0.0.1,"
            " and not from other sites, are answered"
        )


def reject_cross_site(connection: Connection, has_proof: bool) -> None:
    """
    Raise 403 if a link or form of another site starts a request that is recorded.

    Browsers send the origin in `Sec-Fetch-Site`, but perhaps not over plain HTTP. Then a
    request with a cookie needs its CSRF token, as for changes.
    """
    site = connection.headers.get("sec-fetch-site")
    if site is None and has_proof:
        return
    if site not in {"same-origin", "none"}:
        raise PermissionDeniedException(
            "this request is recorded in the audit, so other sites must not start it:"
            " send a token in the Authorization header"
        )


def reject_other_origins(connection: Connection) -> None:
    """Raise 403 unless a form was sent by a page of this server."""
    site = connection.headers.get("sec-fetch-site")
    origin = connection.headers.get("origin", "")
    is_own = site == "same-origin" if site else _netloc(origin) == connection.headers.get("host")
    if not is_own:
        raise PermissionDeniedException(
            "this form can only be sent by a page of this server: open the page and try again"
        )


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:  # not a valid URL
        return None


def _of(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


@lru_cache(64)
def _is_from_here(host: str, origin: str | None) -> bool:
    try:
        asked = urlsplit(f"//{host}").hostname or ""
        is_across = origin is not None and urlsplit(origin).netloc != host
    except ValueError:  # not a valid URL
        return False
    return is_local(asked) and not is_across
