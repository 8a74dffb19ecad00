"""TLS files of a URL, and failed handshakes in our words."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from deadletter.core.errors import ConfigError


def check_files(kind: str, named: Mapping[str, str]) -> None:
    """Raise ConfigError if a file cannot be read; `named` has files by their parameters."""
    for name, file in named.items():
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(
                f"{name}={file} in the {kind} URL cannot be read: {error.strerror}"
            ) from error


def disagreement(where: str, authority: str, ours: str, said: object) -> ConfigError:
    """Return the error for a failed TLS handshake, with the parameters to set in the URL."""
    return ConfigError(
        f"the TLS handshake with {where} failed: give its authority's certificate as"
        f" {authority}, and ours as {ours} if the server requires one ({said})"
    )


def context(
    kind: str, cafile: str | None, certfile: str | None, keyfile: str | None
) -> ssl.SSLContext:
    """Return the TLS context for a URL's files; without `cafile` the system's authorities."""
    given = {"cafile": cafile, "certfile": certfile, "keyfile": keyfile}
    check_files(kind, {name: file for name, file in given.items() if file})
    if keyfile and not certfile:
        raise ConfigError(f"keyfile in the {kind} URL needs its certificate: add ?certfile=")
    try:
        context = ssl.create_default_context(cafile=cafile)
        if certfile:
            context.load_cert_chain(certfile, keyfile)
    except ssl.SSLError as error:
        raise ConfigError(
            f"cafile, certfile or keyfile of the {kind} URL is not a valid certificate or key,"
            f" or they do not match: {error}"
        ) from error
    return context
