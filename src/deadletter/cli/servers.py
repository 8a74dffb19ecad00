"""Servers that are asked, and what to do about one that does not answer."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from deadletter.client import Client, QueueClient
from deadletter.client.answers import Stranger, Unreachable
from deadletter.core.errors import Refused, Unavailable

from .desk import Desk


@asynccontextmanager
async def queue_server(desk: Desk) -> AsyncIterator[QueueClient]:
    """The queue server that is meant: the one that is named, or the one here."""
    here = desk.settings.serve
    url = desk.server or f"http://{here.host}:{here.port}"
    with _told_what_to_do():
        async with QueueClient(url, token=desk.token) as client:
            yield client


@asynccontextmanager
async def server(url: str, token: str | None) -> AsyncIterator[Client]:
    """The server with this address, as this token."""
    with _told_what_to_do():
        async with Client(url, token=token) as client:
            yield client


@contextmanager
def _told_what_to_do() -> Iterator[None]:
    try:
        yield
    except Unreachable as error:
        raise Unavailable(
            f"{error}; `dlq serve` starts one, --server or DLQ_SERVER names another"
        ) from error
    except Stranger as error:
        raise Refused(
            f"{error}; yours is in DLQ_TOKEN, or in the file that DLQ_TOKEN_FILE names"
        ) from error
