"""Where the server may listen, and who counts as on this machine."""

from ipaddress import ip_address


def bind_problem(host: str, access: bool) -> str | None:
    """Why the server must not listen there, with access on or off; or None."""
    if access or is_local(host):
        return None
    return (
        f"serve.host is {host!a} and serve.access is off: everybody who can reach this"
        " machine could read, replay and purge. Turn access on, or listen on 127.0.0.1."
    )


def is_local(host: str) -> bool:
    """Whether this names the machine itself, without asking anybody."""
    name = host.strip("[]").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")
