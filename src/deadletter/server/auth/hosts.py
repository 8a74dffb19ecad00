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
    """Return why one of these does not identify a proxy; or None."""
    for proxy in proxies:
        try:
            is_all = proxy.strip() == EVERYBODY or not ip_network(proxy).prefixlen
        except ValueError:
            return (
                f"serve.proxies has {proxy!a}, and requests come from addresses: give"
                " one, such as 10.0.0.7, or a network, such as 10.0.0.0/24."
            )
        if is_all:
            return (
                f"serve.proxies has {proxy!a}, so everybody could say which address"
                " they come from, and sign-ins would not be limited: give the addresses"
                " of your proxies, such as 10.0.0.7, or their network, 10.0.0.0/24."
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
"""The policy that pages of ours ask for: what is ours runs, and nothing else."""

# Bodies of messages are among the rest: whatever they are, nothing in them runs.
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
_KEPT: Final = b"cache-control"
_NEVER: Final = b"no-store"
OF_ANSWERS: Final = {**_ALWAYS, _POLICY: _DATA, _KEPT: _NEVER}
"""The headers of an answer that says nothing else, such as the HTTP server's own."""


async def security_headers(message: Message, _: Scope) -> None:
    """
    For the app's `before_send`: there even errors without a route come by.

    Only a response that names how long it may be kept is kept anywhere.
    """
    if message["type"] != "http.response.start":
        return
    given = [(name.lower(), value) for name, value in message.get("headers", ())]
    named = dict(given)
    ours = dict(_ALWAYS)
    if _POLICY not in named:
        ours[_POLICY] = _DATA
    if b"max-age" not in named.get(_KEPT, b""):
        ours[_KEPT] = _NEVER
    theirs = [one for one in given if one[0] not in ours]
    message["headers"] = [*theirs, *ours.items()]


Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]
_is_host: Final = re.compile(
    r"([a-z0-9._-]{1,255}|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE
).fullmatch


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


def refuse_odd_hosts(scope: Scope) -> None:
    """
    400 unless a request says once and clearly which host it is for.

    A proxy in front of us and we ourselves could take two of them differently.
    """
    hosts = _of(scope, b"host")
    is_old = scope.get("http_version") in {"1.0", "0.9"}  # which need not say it
    if (hosts or not is_old) and (len(hosts) != 1 or not _is_host(hosts[0])):
        raise ClientException(
            f"a request names one host, such as 127.0.0.1:8418, and this one has"
            f" {len(hosts)} Host headers or one that is malformed: send one"
        )


def refuse_other_sites(scope: Scope) -> None:
    """
    With access off, only what is asked of this machine by itself is answered.

    A page from anywhere can have the browser it is shown in ask for us: under a name
    of its own that leads here, which `Host` tells, or across, which `Origin` tells.
    """
    hosts, origins = _of(scope, b"host"), _of(scope, b"origin")
    if not _is_from_here("".join(hosts), origins[0] if origins else None):
        raise PermissionDeniedException(
            "access is off, so only this machine is answered, asked as localhost or"
            " 127.0.0.1 and by no other site"
        )


def refuse_being_sent(connection: Connection, proof: bool) -> None:
    """
    403 where another site's link or form leads a browser to what is recorded.

    Browsers tell where a request comes from in `Sec-Fetch-Site`. Over plain http they
    may not: then whoever comes with a cookie shows their proof, as for changes.
    """
    sent_by = connection.headers.get("sec-fetch-site")
    if sent_by is None and proof:
        return
    if sent_by not in {"same-origin", "none"}:
        raise PermissionDeniedException(
            "this is recorded, so no other site may lead a browser here: open it from"
            " the console, or send a token in the Authorization header"
        )


def _of(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


@lru_cache(64)
def _is_from_here(host: str, origin: str | None) -> bool:
    try:
        asked = urlsplit(f"//{host}").hostname or ""
        is_across = origin is not None and urlsplit(origin).netloc != host
    except ValueError:  # that is no URL
        return False
    return is_local(asked) and not is_across
