"""Where the server may listen, and who counts as on this machine."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network
from typing import Final

from litestar.types import Message, Scope

EVERYBODY = "*"


def bind_problem(host: str, access: bool) -> str | None:
    """Why the server must not listen there, with access on or off; or None."""
    if access or is_local(host):
        return None
    return (
        f"serve.host is {host!a} and serve.access is off: everybody who can reach this"
        " machine could read, replay and purge. Turn access on, or listen on 127.0.0.1."
    )


def proxy_problem(proxies: Iterable[str]) -> str | None:
    """Why one of these cannot tell proxies from everybody else; or None."""
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
    """Whether this names the machine itself, without asking anybody."""
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
