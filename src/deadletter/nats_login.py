"""
Getting into a NATS server: what a URL says about it, and a client that is let in.

    nats://user:password@host:4222,other:4222     nats://token@host
    tls://host?cafile=ca.pem&certfile=me.pem&keyfile=me.key
    tls://host?creds=me.creds
"""

import asyncio
import logging
import ssl
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct
from nats import errors as theirs
from nats.aio.client import Client
from nats.protocol.command import hpub_cmd

from deadletter.core.errors import BackendError, ConfigError, Unavailable
from deadletter.core.urls import unreadable
from deadletter.tls import context, disagreement

TLS: Final = ("cafile", "certfile", "keyfile")
CREDS: Final = "creds"
OURS: Final = "deadletter: "  # begins the description of every stream that we make
_FAREWELL: Final = 1.0  # seconds
_PATIENCE: Final = 5  # seconds until the first answer
_HABITS: Final[dict[str, Any]] = {
    "ping_interval": 5,  # seconds: a connection that has fallen silent is soon noticed
    "max_outstanding_pings": 2,
}
_IN_CREDS: Final = (b"BEGIN NATS USER JWT", b"BEGIN USER NKEY SEED")
_NOISE: Final = "returning true from eof_received() has no effect when using ssl"


class Login(Struct, frozen=True, kw_only=True):
    """Where servers are, and who we are there."""

    servers: list[str]  # without user and password
    where: str  # for people
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None  # a file with a signed name and its key
    tls: bool = False
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None


def split(url: str) -> SplitResult:
    """The parts of a URL that is one of NATS."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise unreadable("NATS") from error
    if parts.scheme not in {"nats", "tls"}:
        raise ConfigError("a NATS URL begins with nats:// or tls://")
    return parts


def read_login(parts: SplitResult, given: dict[str, str]) -> Login:
    """Who we are, as the URL says; its parameters are taken out of those given."""
    tls = parts.scheme == "tls"
    files = {name: given.pop(name) for name in TLS if tls and name in given}
    user, has_password, password = parts.netloc.rpartition("@")[0].partition(":")
    hosts = parts.netloc.rpartition("@")[2].split(",")
    named = [host for host in hosts if host] or ["localhost:4222"]
    for host in named:
        try:
            _ = urlsplit(f"nats://{host}").port
        except ValueError as error:
            raise unreadable("NATS") from error
    return Login(
        servers=[f"{parts.scheme}://{host}" for host in named],
        where=", ".join(named),
        user=unquote(user) if has_password else None,
        password=unquote(password) if has_password else None,
        token=unquote(user) if user and not has_password else None,
        creds=given.pop(CREDS, None),
        tls=tls,
        **files,
    )


def _is_worth_a_word(record: logging.LogRecord) -> bool:
    """Not so is what asyncio says whenever the client library ends a wire with TLS."""
    return record.msg != _NOISE


logging.getLogger("asyncio").addFilter(_is_worth_a_word)


async def connected(
    login: Login, *, exact_headers: bool = False, **options: Any
) -> Client:
    """
    A client that was let in; it raises what the client library does.

    With `exact_headers` the headers of messages that it gets are `HeaderBlock`s.
    """
    client = (_ExactClient if exact_headers else _Client)(tls=login.tls)
    try:
        await client.connect(**_options(login), **{**_HABITS, **options})
    except BaseException as error:
        await farewell(client)
        if login.creds and type(error).__module__.partition(".")[0] == "nkeys":
            raise _no_creds(login.creds) from error
        raise
    return client


async def knock(login: Login, **options: Any) -> None:
    """
    Be let in once, and leave again; it raises what the client library does.

    A wrong URL is so told at once, where a client would try for ever. The server is
    told to answer everything (`verbose`): one that refuses us hangs up, and what we
    send meanwhile would have its reason lost on the wire.
    """
    await farewell(
        await connected(
            login,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=_PATIENCE,
            reconnect_time_wait=0.2,
            verbose=True,
            **options,
        )
    )


async def farewell(client: Client) -> None:
    """Disconnect; a wire on which TLS broke is never told to be closed."""
    with suppress(AssertionError, TimeoutError, OSError, theirs.Error):
        async with asyncio.timeout(_FAREWELL):
            await client.close()


def at_start(error: Exception, login: Login) -> ConfigError | BackendError:
    """The error of the first call: mostly something was set up wrongly."""
    where, text = login.where, str(error) or type(error).__name__
    if isinstance(error, theirs.AuthorizationError) or "uthorization" in text:
        return ConfigError(
            f"{where} refuses us: put the right user and password into the URL, as in"
            " nats://user:password@host:4222, or the file with our credentials"
            f" (?creds=) ({text})"
        )
    if isinstance(error, theirs.InvalidUserCredentialsError) and login.creds:
        return _no_creds(login.creds)
    if isinstance(error, theirs.SecureConnWantedError):
        return ConfigError(
            f"{where} does not ask for TLS, so we told it nothing: have it require TLS,"
            f" or begin the URL with nats:// ({text})"
        )
    if isinstance(error, ssl.SSLError):
        said = text if login.tls else f"{text}; begin the URL with tls://"
        return disagreement(where, "?cafile=", "?certfile= and ?keyfile=", said)
    if isinstance(error, BackendError):
        return error
    wishes = ""
    if login.tls and not login.certfile:
        wishes = " Does it want a certificate of us (?certfile=, ?keyfile=)?"
    return Unavailable(
        f"no answer from {where}: is NATS running, and is the URL right?"
        f"{wishes} ({text})"
    )


class _Client(Client):
    """Tells nobody who we are where TLS was asked for and is not spoken."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._wants_tls = tls

    def _connect_command(self) -> bytes:
        if self._wants_tls and not self._server_info.get("tls_required"):
            raise theirs.SecureConnWantedError
        return super()._connect_command()


class HeaderBlock(dict[str, str]):
    """
    Headers as the client library knows them, and `block`, as they are on the wire.

    The library keeps one value of each name, and changes bytes that are not UTF-8.
    """

    def __init__(self, block: bytes, known: dict[str, str] | None = None) -> None:
        super().__init__(known or {})
        self.block = block


class _ExactClient(_Client):
    """Gets and sends headers byte for byte."""

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
        "tls": context("NATS", login.cafile, login.certfile, login.keyfile)
        if login.tls
        else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _creds(file: str) -> str:
    if find_spec("nkeys") is None:
        raise ConfigError("?creds= needs nkeys: pip install 'deadletter[nats]'")
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"?creds= of the NATS URL cannot be read: {error}") from error
    if not all(part in content for part in _IN_CREDS):
        raise _no_creds(file)
    return file


def _no_creds(file: str) -> ConfigError:
    return ConfigError(
        f"?creds= of the NATS URL names {file}, which has no credentials in it, or"
        " damaged ones: it takes the file that nsc, or your account's page, has made"
        " for a user"
    )
