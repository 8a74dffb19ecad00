"""Files of certificates, as URLs name them."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from deadletter.core.errors import ConfigError


def check_files(kind: str, named: Mapping[str, str]) -> None:
    """See that files can be read, by the names of their parameters in the URL."""
    for name, file in named.items():
        try:
            with Path(file).open("rb"):
                pass
        except OSError as error:
            raise ConfigError(
                f"{name}={file} in the {kind} URL cannot be read: {error.strerror}"
            ) from error


def disagreement(where: str, authority: str, ours: str, said: object) -> ConfigError:
    """Two sides that do not agree on TLS; parameters are named as the URL has them."""
    return ConfigError(
        f"{where} and we do not agree on TLS: give its authority's certificate as"
        f" {authority}, and ours as {ours} if it wants one ({said})"
    )


def context(
    kind: str, cafile: str | None, certfile: str | None, keyfile: str | None
) -> ssl.SSLContext:
    """What a server is spoken to with; the system's authorities unless one is named."""
    given = {"cafile": cafile, "certfile": certfile, "keyfile": keyfile}
    check_files(kind, {name: file for name, file in given.items() if file})
    if keyfile and not certfile:
        raise ConfigError(
            f"keyfile in the {kind} URL is the key of a certificate: name it as"
            " ?certfile="
        )
    try:
        context = ssl.create_default_context(cafile=cafile)
        if certfile:
            context.load_cert_chain(certfile, keyfile)
    except ssl.SSLError as error:
        raise ConfigError(
            f"cafile, certfile or keyfile of the {kind} URL is no certificate or key,"
            f" or they do not belong together: {error}"
        ) from error
    return context
