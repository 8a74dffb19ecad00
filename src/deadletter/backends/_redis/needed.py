"""The client library is an extra: without it, say how to get it."""

from collections.abc import Iterator
from contextlib import contextmanager

from deadletter.core.errors import ConfigError


@contextmanager
def client_needed(extra: str) -> Iterator[None]:
    """A ConfigError where the library of this extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"redis", "hiredis"}:
            raise
        raise ConfigError(
            f"{extra}:// needs its client: pip install 'deadletter[{extra}]'"
        ) from error
