"""Clients of the NATS library, logged in."""

import asyncio
import logging
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from nats import errors as theirs
from nats.aio.client import Client
from nats.protocol.command import hpub_cmd

from deadletter.core.errors import ConfigError
from deadletter.kit import context

from .address import Login
from .errors import bad_credentials

_CLOSING: Final = 1.0  # seconds
_FIRST_ANSWER: Final = 5  # seconds until the first answer
_PINGS: Final[dict[str, Any]] = {
    "ping_interval": 5,  # seconds: notices a silent connection soon
    "max_outstanding_pings": 2,
}
_IN_CREDS: Final = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")
_NOISE: Final = "returning true from eof_received() has no effect when using ssl"


def _is_not_noise(record: logging.LogRecord) -> bool:
    """Drop the warning that asyncio logs whenever the client ends a TLS connection."""
    return record.msg != _NOISE


logging.getLogger("asyncio").addFilter(_is_not_noise)


async def connected(login: Login, *, exact_headers: bool = False, **options: Any) -> Client:
    """
    Connect and log in; raises errors of the client library.

    With `exact_headers` received headers are `HeaderBlock`s.
    """
    client = (_ExactClient if exact_headers else _Client)(tls=login.tls)
    try:
        await client.connect(**_options(login), **{**_PINGS, **options})
    except BaseException as error:
        await disconnect(client)
        if login.creds and type(error).__module__.partition(".")[0] == "nkeys":
            raise bad_credentials(login.creds) from error
        raise
    return client


async def try_login(login: Login, **options: Any) -> None:
    """
    Log in once and disconnect; raises errors of the client library.

    So a wrong URL fails at once, where a client would retry for ever. The server has to
    answer everything (`verbose`): otherwise its reason to reject us may get lost while
    we send.
    """
    await disconnect(
        await connected(
            login,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=_FIRST_ANSWER,
            reconnect_time_wait=0.2,
            verbose=True,
            **options,
        )
    )


async def disconnect(client: Client) -> None:
    """Disconnect; a connection whose TLS broke never confirms it."""
    with suppress(AssertionError, TimeoutError, OSError, theirs.Error):
        async with asyncio.timeout(_CLOSING):
            await client.close()


class _Client(Client):
    """A client that sends no credentials without TLS if the URL asks for TLS."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._wants_tls = tls

    def _connect_command(self) -> bytes:
        if self._wants_tls and not self._server_info.get("tls_required"):
            raise theirs.SecureConnWantedError
        return super()._connect_command()


class HeaderBlock(dict[str, str]):
    """
    Headers as the client library reads them, and `block`, their exact bytes.

    The library keeps one value of each name, and replaces bytes that are not UTF-8.
    """

    def __init__(self, block: bytes, known: dict[str, str] | None = None) -> None:
        super().__init__(known or {})
        self.block = block


class _ExactClient(_Client):
    """A client that receives and sends headers byte for byte."""

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        known = await super()._process_headers(headers)
        return HeaderBlock(bytes(headers), known) if headers else known

    async def _send_publish(
        self,
        subject: str,
        reply: str,
        payload: bytes,
        payload_size: int,
        headers: dict[str, Any] | None,
    ) -> None:
        if not isinstance(headers, HeaderBlock):
            await super()._send_publish(subject, reply, payload, payload_size, headers)
            return
        await self._send_command(hpub_cmd(subject, reply, headers.block, payload))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()


def _options(login: Login) -> dict[str, Any]:
    given = {
        "servers": login.servers,
        "user": login.user,
        "password": login.password,
        "token": login.token,
        "user_credentials": _creds(login.creds) if login.creds else None,
        "tls": context("NATS", login.cafile, login.certfile, login.keyfile) if login.tls else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _creds(file: str) -> str:
    if find_spec("nkeys") is None:
        raise ConfigError("?creds= needs nkeys: pip install 'deadletter[nats]'")
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"Could not read the file of ?creds= in the NATS URL: {error}") from error
    if not all(part in content for part in _IN_CREDS):
        raise bad_credentials(file)
    return file
