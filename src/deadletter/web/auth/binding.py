"""Where the server may listen, and who counts as on this machine."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

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
