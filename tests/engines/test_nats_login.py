"""Who we are on a NATS server: told to those who should know, and nobody else."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from deadletter.brokers.nats.engine import connect
from deadletter.core.errors import ConfigError
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.wiring.foreign import opened_foreign
from servers import Server
from servers.common import HOST
from servers.fixtures import serve
from servers.nats_accounts import NatsWithAccounts
from servers.secure import SecureNats

pytestmark = pytest.mark.xdist_group("nats_server")


@pytest.fixture(scope="module")
def accounts(started_servers: list[Server]) -> Iterator[Server]:
    yield from serve(NatsWithAccounts, started_servers)


@pytest.fixture
def secure(started_servers: list[Server]) -> Iterator[SecureNats]:
    for server in serve(SecureNats, started_servers):
        yield cast("SecureNats", server)


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


async def test_a_file_that_is_something_else_is_told(accounts: Server, tmp_path: Path) -> None:
    file = tmp_path / "me.creds"
    file.write_text("hello")

    with pytest.raises(ConfigError, match=r"\?creds="):
        await connect(f"{accounts.url.partition('?')[0]}?creds={file}", clock=SystemClock())


async def as_engine(url: str) -> None:
    await (await connect(url, clock=SystemClock())).close()


async def to_drain(url: str) -> None:
    async with opened_foreign(url):
        pass


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("SEED-----\nSU", "SEED-----\n"),
        lambda text: text[: text.index("SEED-----\n") + 20],
        lambda text: "BEGIN NATS USER JWT\nBEGIN USER NKEY SEED\n",
    ],
)
async def test_damaged_credentials_are_told(
    accounts: Server, tmp_path: Path, change: Callable[[str], str]
) -> None:
    whole = cast("NatsWithAccounts", accounts).creds.read_text()
    file = tmp_path / "me.creds"
    file.write_text(change(whole))

    with pytest.raises(ConfigError, match=r"\?creds="):
        await connect(f"{accounts.url.partition('?')[0]}?creds={file}", clock=SystemClock())


@pytest.mark.parametrize(
    "url",
    [
        "nats://me:hush/word@localhost",
        "nats://me:hush#word@localhost",
        "nats://me:hush?word@localhost",
        "nats://me:hush\u2100@localhost",
        "nats://localhost:hush",
    ],
)
async def test_a_url_that_is_none_keeps_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await connect(url, clock=SystemClock())

    assert "hush" not in str(caught.value)


async def test_a_wire_whose_tls_broke_does_not_hold_up_the_end(secure: SecureNats) -> None:
    engine = await connect(secure.url, clock=SystemClock())
    secure.stop()
    secure.papers.write()  # of an authority that we do not know
    secure.start()
    client = engine._link.client
    await eventually(lambda: isinstance(client.last_error, ssl.SSLError), within=20)

    await asyncio.wait_for(engine.close(), 10)


@pytest.mark.parametrize("open_it", [as_engine, to_drain])
async def test_a_server_without_tls_is_told_nothing_when_tls_was_asked_for(
    open_it: Callable[[str], Awaitable[None]],
) -> None:
    async with eavesdropping() as (port, heard):
        url = f"tls://me:s3cret@{HOST}:{port}"
        with pytest.raises(ConfigError, match="does not ask for TLS"):
            await open_it(url)

        await eventually(lambda: heard)
    assert set(heard) == {b""}


@asynccontextmanager
async def eavesdropping() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Something that introduces itself as NATS, and what it was told."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.10.0","max_payload":1048576,"auth_required":true}\r\n')
        heard.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(talk, HOST) as server:
        yield server.sockets[0].getsockname()[1], heard
