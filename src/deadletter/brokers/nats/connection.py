"""
The connection to a NATS server: requests in batches, and a client that is replaced.

Requests go out together and are awaited together. When the connection is cut, every
pending request fails at once: the server may have processed it or not.

The client library reconnects when a connection is cut. It gives up, or waits for minutes,
when the server sends what it cannot read, rejects what reached it changed, or falls
silent. Such a client is replaced by a new one.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from nats import errors as theirs
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.protocol.command import hpub_cmd

from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.kit import context

from .address import Login
from .errors import KNOWN, NoResponder, answered, at_start, bad_credentials, translated

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
    client = (_ExactClient if exact_headers else _TlsClient)(tls=login.tls)
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


class _TlsClient(Client):
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


class _ExactClient(_TlsClient):
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


_CONNECTING: Final = 10.0  # seconds for a connection to be made
_PAUSES: Final = (0.1, 0.5, 1.0, 2.0)  # seconds between tries; the last one stays
_RECONNECTING: Final = 10.0  # seconds for the library to reconnect by itself
_OPTIONS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "reconnect_time_wait": 0.2,
    "max_reconnect_attempts": -1,  # no limit
    "pending_size": 0,  # keep nothing while cut off: it would be sent too late
}


class Listener(Protocol):
    """Receiver of changes of the connection."""

    async def cut(self) -> None:
        """The connection is cut: no pending answer will come."""

    async def error(self, error: Exception) -> None:
        """The client library reported an error."""

    async def begun(self, client: Client) -> None:
        """A new client is connected: subscribe again."""


class _Client:
    """The current client of the library; replaced when it no longer works."""

    def __init__(self, login: Login, listener: Listener, *, exact_headers: bool) -> None:
        self._login = login
        self._exact_headers = exact_headers
        self._listener = listener
        self._client: Client | None = None
        self._cut_at: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Connect for the first time; raises errors of the library."""
        self._client = await self._connected(())

    @property
    def client(self) -> Client:
        """The connected client; Unavailable while there is none."""
        client = self._client
        if client is None or self._renewing is not None:
            raise Unavailable("reconnecting to the server")
        if not client.is_connected:
            self._look_at(client)
            # The library would keep what is sent now, and send it too late.
            raise Unavailable("the connection to the server is cut")
        return client

    def renew(self) -> None:
        """Replace a client that does not answer."""
        if self._renewing is None and not self._closed:
            self._renewing = asyncio.create_task(self._renew())
            self._renewing.add_done_callback(self._renewed)

    async def close(self) -> None:
        """Disconnect for good."""
        self._closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._client is not None:
            await _abandon(self._client)

    def _look_at(self, client: Client) -> None:
        """Replace a client that was closed, or does not reconnect in time."""
        now = asyncio.get_running_loop().time()
        if self._cut_at is None:
            self._cut_at = now
        if client.is_closed or now - self._cut_at > _RECONNECTING:
            self.renew()

    async def _renew(self) -> None:
        old = self._client
        seeds: Sequence[str] = ()
        if old is not None:
            seeds = [f"nats://{uri.netloc}" for uri in old.discovered_servers]
            await _abandon(old)
        await self._listener.cut()
        tries = 0
        while True:
            try:
                client = await self._connected(seeds)
                await self._listener.begun(client)
            except Exception as error:  # noqa: BLE001 -- any error may be temporary
                await self._listener.error(error)
            else:
                self._client, self._cut_at = client, None
                return
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1

    def _renewed(self, task: "asyncio.Task[None]") -> None:
        self._renewing = None
        if not task.cancelled():
            task.exception()

    async def _connected(self, seeds: Sequence[str]) -> Client:
        login = self._login
        if seeds:
            named = [seed for seed in seeds if seed not in login.servers]
            login = replace(login, servers=[*login.servers, *named])
        async with asyncio.timeout(_CONNECTING):
            return await connected(
                login,
                exact_headers=self._exact_headers,
                disconnected_cb=self._on_cut,
                reconnected_cb=self._on_back,
                closed_cb=self._on_closed,
                error_cb=self._listener.error,
                **_OPTIONS,
            )

    async def _on_cut(self) -> None:
        if self._cut_at is None:
            self._cut_at = asyncio.get_running_loop().time()
        await self._listener.cut()

    async def _on_back(self) -> None:
        self._cut_at = None

    async def _on_closed(self) -> None:
        client = self._client
        if client is not None and client.is_closed:
            self.renew()


async def _abandon(client: Client) -> None:
    """Disconnect, also from a server that reads and answers nothing."""
    await disconnect(client)
    with suppress(AttributeError):  # no public name
        client._transport._io_writer.transport.abort()  # type: ignore[union-attr]  # noqa: SLF001


T = TypeVar("T")

TIMEOUT: Final = 10.0  # seconds for an answer
_AT_ONCE: Final = 256  # pending requests, so that no buffer overflows
_NANO: Final = 1_000_000_000
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Sending(Struct, frozen=True):
    """A message to the server."""

    subject: str
    payload: bytes = b""
    headers: dict[str, str] | None = None


class _Batch:
    """Pending answers to a batch of requests."""

    def __init__(self, size: int) -> None:
        self.answers: list[Msg | None] = [None] * size
        self.left = size
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


async def open_link(login: Login, *, second: float = 1.0, exact_headers: bool = False) -> "Link":
    """Connect and log in; a wrong URL or login raises ConfigError."""
    link = Link(login, second=second, exact_headers=exact_headers)
    try:
        await try_login(login, error_cb=link.error)
        await link.begin()
    except KNOWN as failure:
        raise at_start(failure, login) from failure
    return link


def new_inbox() -> str:
    """Return a subject that nobody else subscribes to."""
    return f"_INBOX.{token_hex(11)}"


class Link:
    """
    Requests to the server.

    `second` is the length of a second of leases and delays; tests make it short.
    """

    def __init__(self, login: Login, *, second: float = 1.0, exact_headers: bool = False) -> None:
        self.second = second
        self._client = _Client(login, self, exact_headers=exact_headers)
        self._denied: list[str] = []  # recent permission errors
        self.on_cut: dict[Callable[[], None], None] = {}
        self._inbox = new_inbox()
        self._batches: dict[str, _Batch] = {}
        self._numbers = count(1)
        self._background: set[asyncio.Task[Any]] = set()

    async def begin(self) -> None:
        """Connect, and subscribe to answers."""
        await self._client.start()
        await self.begun(self.client)

    async def begun(self, client: Client) -> None:
        """Subscribe to answers on a new connection."""
        await client.subscribe(f"{self._inbox}.*.*", cb=self._answer)

    @property
    def client(self) -> Client:
        """The client of the library; Unavailable while it is not connected."""
        return self._client.client

    @property
    def is_connected(self) -> bool:
        """Tell whether the connection can send."""
        try:
            return self._client.client.is_connected
        except Unavailable:
            return False

    async def connected(self) -> Client:
        """Wait until the client is connected, also by a new connection, and return it."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while True:
            try:
                return self._client.client
            except Unavailable:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(_PAUSES[0])

    def renew(self) -> None:
        """Replace a connection that does not answer, or not what can be read."""
        self._client.renew()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read an answer; reconnect if it is malformed, as one that was changed on the way."""
        try:
            yield
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            self.renew()
            told = f"{type(error).__name__}: {error}"
            raise Unavailable(f"malformed answer of the server: {told}") from error

    def nanos(self, seconds: float) -> int:
        """Convert seconds to the nanoseconds of the server."""
        return max(1, int(seconds * self.second * _NANO))

    async def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Call the JetStream API; raises its error."""
        payload = b"" if body is None else _encode(body)
        (answer,) = await self.ask_all([Sending(f"$JS.API.{subject}", payload)])
        return answer

    async def ask_all(self, sendings: Sequence[Sending]) -> list[dict[str, Any]]:
        """Send requests together; raises the first error."""
        said = await self.requests(sendings)
        with self.reading():
            answers = [_read(msg) for msg in said]
            for answer in answers:
                if "error" in answer:
                    raise answered(answer["error"])
        return answers

    async def requests(self, sendings: Sequence[Sending]) -> list[Msg]:
        """Send requests together, and wait for all answers."""
        found: list[Msg] = []
        for start in range(0, len(sendings), _AT_ONCE):
            found += await self._requests(sendings[start : start + _AT_ONCE])
        return found

    async def latest(self, stream: str, subjects: Sequence[str]) -> list[tuple[int, bytes] | None]:
        """The last message on each subject: its number and content."""
        prefix = f"$JS.API.DIRECT.GET.{stream}"
        answers = await self.requests([Sending(f"{prefix}.{s}") for s in subjects])
        found: list[tuple[int, bytes] | None] = []
        with self.reading():
            for answer in answers:
                headers = answer.headers or {}
                status = headers.get("Status")
                if status is None:
                    found.append((int(headers["Nats-Sequence"]), answer.data))
                elif status == "404":
                    found.append(None)
                else:
                    raise NoResponder(f"the stream {stream} is not available now ({status})")
        return found

    async def in_turn(self, sendings: Sequence[Sending]) -> None:
        """
        Send to one consumer, and return when it has processed all of them.

        It processes them in order, so its answer to the last one stands for all.
        """
        if not sendings:
            return
        try:
            async with asyncio.timeout(TIMEOUT):
                for sending in sendings[:-1]:
                    await self.send(sending)
        except TimeoutError as error:
            self.renew()
            raise Unavailable("the server reads nothing any more") from error
        (answer,) = await self._requests(sendings[-1:])
        if _status(answer) == "503":
            raise NoResponder("no responder for this consumer")

    async def send(self, sending: Sending, reply: str = "") -> None:
        """Send without waiting for an answer."""
        client = self.client
        try:
            await client.publish(sending.subject, sending.payload, reply, sending.headers)
        except KNOWN as error:
            raise translated(error) from error

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start a task that continues when its caller is cancelled."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cut(self) -> None:
        """Fail all pending requests: the connection is cut."""
        for batch in self._batches.values():
            _fail(batch.done)
        for call in list(self.on_cut):
            call()

    async def error(self, error: Exception) -> None:
        """Note permission errors; other errors are raised elsewhere, too."""
        if "ermissions" in str(error):
            self._denied = [*self._denied[-9:], str(error)]

    async def close(self) -> None:
        """Finish background tasks, and disconnect."""
        if self._background:
            await asyncio.wait(self._background, timeout=TIMEOUT)
        for task in self._background:
            task.cancel()
        await self._client.close()

    async def _requests(self, sendings: Sequence[Sending]) -> list[Msg]:
        if not sendings:
            return []
        key = str(next(self._numbers))
        self._denied.clear()
        batch = self._batches[key] = _Batch(len(sendings))
        try:
            async with asyncio.timeout(TIMEOUT):
                for number, sending in enumerate(sendings):
                    await self.send(sending, f"{self._inbox}.{key}.{number}")
                await batch.done
        except TimeoutError as error:
            if self._denied:
                raise Refused(_forbidden(self._denied[-1])) from error
            self.renew()
            raise translated(error, f"no answer within {TIMEOUT:g} s") from error
        finally:
            del self._batches[key]
            if batch.done.done() and not batch.done.cancelled():
                batch.done.exception()  # retrieved, also when sending failed first
        return [answer for answer in batch.answers if answer is not None]

    async def _answer(self, msg: Msg) -> None:
        _, key, number = msg.subject.rsplit(".", 2)
        batch = self._batches.get(key)
        if batch is None:
            return  # the request has timed out
        place = int(number)
        if batch.answers[place] is None:
            batch.answers[place] = msg
            batch.left -= 1
            if not batch.left and not batch.done.done():
                batch.done.set_result(None)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: whoever awaits the task still gets it


def _read(msg: Msg) -> dict[str, Any]:
    if _status(msg) == "503":
        raise NoResponder("no responder for this stream")
    answer: dict[str, Any] = _decode(msg.data)
    return answer


def _status(msg: Msg) -> str | None:
    headers: Mapping[str, str] = msg.headers or {}
    return headers.get("Status")


def _fail(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_exception(Unavailable("the connection to the server was cut"))


def _forbidden(error: str) -> str:
    return (
        f"our user lacks permissions: allow it to publish to $JS.API.>, $JS.ACK.> and the"
        f" mailboxes, and to subscribe to _INBOX.> ({error})"
    )
