"""Who we are on a NATS server: told to those who should know, and nobody else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter.assembly.foreign import opened_foreign
from deadletter.backends.nats.engine import connect
from deadletter.core.errors import ConfigError
from deadletter.system import SystemClock
from deadletter.testing.waiting import eventually
from servers import Server
from servers.common import HOST
from servers.fixtures import serve
from servers.nats_accounts import NatsWithAccounts

pytestmark = pytest.mark.xdist_group("nats_server")


@pytest.fixture(scope="module")
def accounts(started_servers: list[Server]) -> Iterator[Server]:
    yield from serve(NatsWithAccounts, started_servers)


async def test_a_file_of_credentials_lets_us_in(accounts: Server) -> None:
    engine = await connect(accounts.url, clock=SystemClock())
    await engine.close()
    async with opened_foreign(accounts.url) as foreign:
        assert [name for name in await foreign.places() if "dlq" not in name] == []


async def test_without_it_we_are_refused_and_told(accounts: Server) -> None:
    with pytest.raises(ConfigError, match=r"\?creds="):
        await connect(accounts.url.partition("?")[0], clock=SystemClock())


async def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(ConfigError, match=r"\?creds= .*/nowhere/me\.creds"):
        await connect("nats://localhost?creds=/nowhere/me.creds", clock=SystemClock())


async def test_a_file_that_is_something_else_is_told(
    accounts: Server, tmp_path: Path
) -> None:
    file = tmp_path / "me.creds"
    file.write_text("hello")

    with pytest.raises(ConfigError, match=r"\?creds="):
        await connect(
            f"{accounts.url.partition('?')[0]}?creds={file}", clock=SystemClock()
        )


async def as_engine(url: str) -> None:
    await (await connect(url, clock=SystemClock())).close()


async def to_drain(url: str) -> None:
    async with opened_foreign(url):
        pass


@pytest.mark.parametrize("open_it", [as_engine, to_drain])
async def test_a_server_without_tls_is_told_nothing_when_tls_was_asked_for(
    open_it: Callable[[str], Awaitable[None]],
) -> None:
    async with eavesdropping() as (port, heard):
        url = f"tls://me:s3cret@{HOST}:{port}"
        with pytest.raises(ConfigError, match="does not speak TLS"):
            await open_it(url)

        await eventually(lambda: heard)
    assert set(heard) == {b""}


@asynccontextmanager
async def eavesdropping() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Something that introduces itself as NATS, and what it was told."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'INFO {"version":"2.10.0","max_payload":1048576,"auth_required":true}\r\n'
        )
        heard.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(talk, HOST) as server:
        yield server.sockets[0].getsockname()[1], heard
