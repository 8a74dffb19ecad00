"""
Parts that every backend is built from: its errors, its URL, its client library, its tasks.

    ERRORS = ErrorTable("RabbitMQ", {403: (ConfigError, "…"), OSError: (NoAnswer, "…")})
    URL = UrlForm("RabbitMQ", {"amqp": 5672, "amqps": 5671}, Options, example="amqp://host/")

    address = URL.read(url)                  raises ConfigError, never with a password
    with ERRORS.translated():                raises our errors instead of the client's
        ...

`ErrorTable` translates the errors of a client library. `UrlForm` reads URLs, with the
options of a `msgspec.Struct`. `client_library` explains how to install a missing client.
`EngineTasks` runs every call to its end, also when the caller stops waiting.
`MailboxEngine` is the base of engines that keep no letters.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import ConfigError, DeadLetterError, PartlySent, Unavailable
from deadletter.core.message import Message
from deadletter.core.redact import unreadable
from deadletter.ports.broker import Broker, Postman, Undertaker
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Features
from deadletter.ports.letters import LetterStore


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
        f"{where} and we do not agree on TLS: give its authority's certificate as"
        f" {authority}, and ours as {ours} if it wants one ({said})"
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


# --- Errors of client libraries ---


class NoAnswer(Unavailable):
    """The connection broke or timed out: the call may have taken effect, or not."""


ErrorKey: TypeAlias = type[Exception] | int | str
"""A class of errors, or an error code of the server"""
ErrorRow: TypeAlias = tuple[type[DeadLetterError], str]
"""The error to raise, and its text: what is wrong and what to do"""


def error_text(error: BaseException) -> str:
    """Return the text of an error, or the name of its class if it has none."""
    return str(error) or type(error).__name__


def _no_codes(_: Exception) -> Sequence[int | str]:
    return ()


class ErrorTable:
    """
    Translation of a client library's errors into ours.

    Error codes are looked up first, from the most specific to the least, then classes in
    the order of the rows. The original text follows ours in parentheses.
    """

    def __init__(
        self,
        service: str,
        rows: Mapping[ErrorKey, ErrorRow],
        *,
        opening: Mapping[ErrorKey, ErrorRow] | None = None,
        configuration: Mapping[ErrorKey, str] | None = None,
        codes: Callable[[Exception], Sequence[int | str]] = _no_codes,
        text: Callable[[BaseException], str] = error_text,
        tls_options: tuple[str, str] = ("?cafile=", "?certfile= and ?keyfile="),
    ) -> None:
        """
        Build a table.

        `opening` has rows that count only while an engine is opened; their texts may
        mention `{where}`. `configuration` has texts of errors that are ConfigError while an
        engine is opened. Later they are Unavailable: what has changed may change back.
        `codes` returns the server's error codes of an error.
        `tls_options` name the URL's options for the server's authority and our certificate.
        """
        self.service = service
        for key, words in (configuration or {}).items():
            rows = {key: (Unavailable, words), **rows}
            opening = {**(opening or {}), key: (ConfigError, f"{{where}}: {words}")}
        self.known: tuple[type[Exception], ...] = tuple(
            key for key in rows if isinstance(key, type)
        )
        self._rows = rows
        self._opening = opening or {}
        self._codes = codes
        self._text = text
        self._tls_options = tls_options

    def extended(self, rows: Mapping[ErrorKey, ErrorRow]) -> "ErrorTable":
        """Return a table in which these rows come before the others."""
        rest = {key: row for key, row in self._rows.items() if key not in rows}
        return ErrorTable(
            self.service,
            {**rows, **rest},
            opening=self._opening,
            codes=self._codes,
            text=self._text,
            tls_options=self._tls_options,
        )

    @contextmanager
    def translated(self, doing: str = "") -> Iterator[None]:
        """Raise our errors instead of the client library's."""
        try:
            yield
        except self.known as error:
            raise self.translate(error, doing) from error

    def translate(self, error: Exception, doing: str = "") -> DeadLetterError:
        """Return our error for one of the client library; `doing` begins its text."""
        if isinstance(error, DeadLetterError):
            return error
        row = self._row(self._rows, error)
        if row is None:
            raise error
        kind, words = row
        begin = f"{doing}: " if doing else ""
        return kind(f"{begin}{words} ({self._text(error)})")

    def translate_answer(
        self, codes: Sequence[int | str], text: str, doing: str = ""
    ) -> DeadLetterError:
        """
        Return our error for an answer of the server that is not an exception.

        At least the last of its codes must have a row.
        """
        kind, words = next(self._rows[code] for code in codes if code in self._rows)
        begin = f"{doing}: " if doing else ""
        return kind(f"{begin}{words} ({text})")

    def translate_opening(self, error: Exception, where: str, hint: str = "") -> DeadLetterError:
        """
        Return our error for one that was raised while an engine was opened.

        `hint` is a question to add when the server does not answer.
        """
        text = self._text(error)
        if _is_tls_error(error):
            return disagreement(where, *self._tls_options, text)
        row = self._row(self._opening, error)
        if row is not None:
            kind, words = row
            return kind(f"{words.replace('{where}', where)} ({text})")
        ours = self.translate(error, where)
        if isinstance(ours, NoAnswer):
            hint = f" {hint}" if hint else ""
            return Unavailable(
                f"no answer from {where}: is {self.service} running, and is the URL right?"
                f"{hint} ({text})"
            )
        return ours

    def _row(self, rows: Mapping[ErrorKey, ErrorRow], error: Exception) -> ErrorRow | None:
        for code in self._codes(error):
            if code in rows:
                return rows[code]
        for key, row in rows.items():
            if isinstance(key, type) and isinstance(error, key):
                return row
        return None


def _is_tls_error(error: BaseException | None) -> bool:
    for _ in range(5):
        if error is None or isinstance(error, ssl.SSLError):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLError)


# --- URLs of servers ---

OptionsT = TypeVar("OptionsT", bound=Struct)


class NoOptions(Struct, frozen=True):
    """Parameters of URLs that have none."""


class Host(Struct, frozen=True):
    """One server that a URL names."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


class ServerUrl(Struct, Generic[OptionsT], frozen=True, kw_only=True):
    """A URL that was read; user, password and path are decoded."""

    scheme: str
    hosts: tuple[Host, ...]
    user: str | None
    password: str | None
    path: str
    options: OptionsT
    client_options: dict[str, str]  # for the client library, by its own names
    client_url: str  # for the client library: the URL without our options
    is_tls: bool

    @property
    def where(self) -> str:
        """The servers or the socket, without user and password, for people."""
        return ", ".join(map(str, self.hosts)) or self.path

    @property
    def host(self) -> Host:
        """The only server."""
        return self.hosts[0]


class UrlForm(Generic[OptionsT]):
    """The form of one backend's URLs: schemes, usual ports, options."""

    def __init__(
        self,
        service: str,
        ports: Mapping[str, int | None],
        options: type[OptionsT],
        *,
        example: str,
        tls_schemes: Sequence[str] = (),
        tls_options: Sequence[str] = (),
        socket_schemes: Sequence[str] = (),
        many_hosts: bool = False,
        default_host: str | None = "localhost",
        is_client_option: Callable[[str], bool] = lambda _: False,
        client_files: Sequence[str] = (),
        client_names: Sequence[str] = (),
    ) -> None:
        """
        Describe URLs.

        `ports` has the usual port of every scheme; None means that there is none.
        `options` is a Struct with the names, types, defaults and limits (`msgspec.Meta`)
        of the query's parameters. `tls_options` are those that need one of `tls_schemes`;
        they name files. URLs with one of `socket_schemes` name a socket instead of a host.
        `is_client_option` accepts names that belong to the client library. Those in
        `client_files` name files; `client_names` are suggested for misspelled names.
        Without a `default_host`, a URL may name no host.
        """
        self.service = service
        self.ports = ports
        self.options = options
        self.example = example
        self._tls_schemes = tls_schemes
        self._tls_options = tls_options
        self._socket_schemes = socket_schemes
        self._many_hosts = many_hosts
        self._default_host = default_host
        self._is_client_option = is_client_option
        self._client_files = client_files
        self._client_names = client_names

    def read(self, url: str) -> ServerUrl[OptionsT]:
        """Read a URL; ConfigError says what to change, without user or password."""
        try:
            parts = urlsplit(url)
            given = parse_qsl(parts.query, keep_blank_values=True)
            self._check_escapes(parts, given)
            hosts = self._hosts(parts)
        except ValueError as error:
            raise unreadable(self.service) from error
        if parts.scheme not in self.ports:
            known = " or ".join(f"{scheme}://" for scheme in self.ports)
            raise ConfigError(f"{self.service} URLs begin with {known}, as in {self.example}")
        if parts.scheme in self._socket_schemes and (hosts or not parts.path.strip("/")):
            raise ConfigError(
                f"a {parts.scheme} URL names a socket, as in"
                f" {parts.scheme}:///run/{self.service.lower()}.sock"
            )
        if len(hosts) > 1 and not self._many_hosts:
            raise ConfigError(f"{self.service} URLs name one host, as in {self.example}")
        theirs = [(name, value) for name, value in given if self._is_client_option(name)]
        client = dict(theirs)
        ours = {name: value for name, value in given if name not in client}
        options = self.read_options(parts.scheme, ours)
        check_files(self.service, {n: client[n] for n in self._client_files if client.get(n)})
        user, has_password, password = parts.netloc.rpartition("@")[0].partition(":")
        return ServerUrl(
            scheme=parts.scheme,
            hosts=hosts,
            user=unquote(user) or None,
            password=unquote(password) if has_password else None,
            path=unquote(parts.path),
            options=options,
            client_options=client,
            client_url=parts._replace(query=urlencode(theirs)).geturl(),
            is_tls=parts.scheme in self._tls_schemes,
        )

    def _check_escapes(self, parts: SplitResult, given: Iterable[tuple[str, str]]) -> None:
        """Raise ValueError if a password with / ? or # seems to have cut the URL short."""
        beyond = [parts.path, parts.fragment, *(name for name, _ in given)]
        if parts.fragment or ("@" not in parts.netloc and any("@" in one for one in beyond)):
            raise ValueError("a character of the password is not escaped")

    def _hosts(self, parts: SplitResult) -> tuple[Host, ...]:
        port = self.ports.get(parts.scheme)
        named = [one for one in parts.netloc.rpartition("@")[2].split(",") if one]
        if parts.scheme in self._socket_schemes and not named:
            return ()
        if not named and self._default_host is not None:
            return (Host(self._default_host, port),)
        hosts = []
        for one in named:
            split = urlsplit(f"//{one}")
            if split.port == 0:
                raise ValueError("port 0")
            name = split.hostname or self._default_host
            if not name:
                raise ValueError("a port without a host")
            hosts.append(Host(name, split.port or port))
        return tuple(hosts)

    def read_options(self, scheme: str, given: Mapping[str, str]) -> OptionsT:
        """Read the parameters of a query; ConfigError says what to change."""
        fields = {field.encode_name: field for field in _fields(self.options)}
        for name in given:
            if name not in fields:
                raise ConfigError(self._unknown(name, fields))
        is_tls = scheme in self._tls_schemes
        files = {name: given[name] for name in self._tls_options if name in given}
        if files and not is_tls:
            raise ConfigError(
                f"{min(files)} in the {self.service} URL needs TLS: begin the URL with"
                f" {self._tls_schemes[0]}://"
            )
        for name, value in given.items():
            try:
                msgspec.convert({name: value}, self.options, strict=False)
            except msgspec.ValidationError as error:
                expected = _expected(fields[name].type)
                raise ConfigError(
                    f"{name} in the {self.service} URL must be {expected}, got"
                    f" {value.rpartition('@')[2][:60]!a}"
                ) from error
        check_files(self.service, files)
        return msgspec.convert(given, self.options, strict=False)

    def _unknown(self, name: str, fields: Iterable[str]) -> str:
        known = [one for one in fields if one not in self._tls_options]
        near = _nearest(name, [*fields, *self._client_names])
        meant = f" (did you mean {near[0]!a}?)" if near else ""
        more = ""
        if self._tls_options:
            more = f"; with {self._tls_schemes[0]}:// also {', '.join(self._tls_options)}"
        return (
            f"unknown parameter {name!a} in the {self.service} URL{meant};"
            f" known are: {', '.join(known) or 'none'}{more}"
        )


def _fields(options: type[Struct]) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(options)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def _expected(kind: msgspec.inspect.Type) -> str:
    """Describe the values of an option for people."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return _expected(types[0])
        case msgspec.inspect.Metadata(type=inner, extra_json_schema=schema):
            return (schema or {}).get("description") or _expected(inner)
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case msgspec.inspect.IntType(ge=low, le=high):
            if low is not None and high is not None:
                return f"a number from {low} to {high}"
            return "a number" if low is None else f"a number, at least {low}"
    return "a text"


# --- Engines ---


class MailboxEngine:
    """An engine of mailboxes; it keeps no letters, and a ledger only if it sets one."""

    letters: LetterStore | None = None
    ledger: Ledger | None = None
    undertaker: Undertaker | None = None
    postman: Postman | None = None

    def __init__(self, broker: Broker, features: Features) -> None:
        self.broker = broker
        self.features = features


# --- Times ---

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as whole microseconds since 1970."""
    return (at - EPOCH) // _MICROSECOND


def when(at: int) -> datetime:
    """Return the time at a number of microseconds since 1970."""
    return EPOCH + timedelta(0, 0, at)


# --- Clients, names, sending ---


@contextmanager
def client_library(scheme: str, extra: str, *packages: str) -> Iterator[None]:
    """Raise ConfigError if an import fails because these packages are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise ConfigError(
            f"{scheme}:// needs its client: pip install 'deadletter[{extra}]'"
        ) from error


def near_names(name: str, known: Iterable[str]) -> str:
    """Return a sentence that asks whether one of the known names was meant, or ""."""
    near = _nearest(name, known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    lower = {one.lower(): one for one in known}
    return [lower[one] for one in get_close_matches(name.lower(), lower, 3)]


_DEAD_ENDS: Final = ("dlq", "dlt", "dead", "dead-letters", "dead_letters", "poison")
_DEAD_STARTS: Final = tuple(
    f"{word}{mark}" for word in ("dlq", "dlt", "dead-letter", "poison") for mark in ".-_"
)


def is_called_dead(name: str) -> bool:
    """Return whether a topic or stream is named like one for dead letters."""
    lower = name.lower()
    return lower.startswith(_DEAD_STARTS) or lower.endswith(_DEAD_ENDS)


def with_expiry(
    messages: Sequence[Message], expire_after: float | None, now: datetime
) -> Sequence[Message]:
    """Return messages with the expiry of their mailbox, unless they have their own."""
    if expire_after is None:
        return messages
    end = now + timedelta(seconds=expire_after)
    return [
        structs.replace(message, expires_at=end) if message.expires_at is None else message
        for message in messages
    ]


async def send_in_turn(
    messages: Sequence[Message], send: Callable[[Message], Awaitable[Any]]
) -> None:
    """
    Send messages one after the other; a refused message does not stop the rest.

    Raises `PartlySent` unless all were sent. `Unavailable` ends the sending: whether the
    message it was raised for has been sent is unknown.
    """
    sent: list[int] = []
    refused: dict[int, DeadLetterError] = {}
    for place, message in enumerate(messages):
        try:
            await send(message)
        except Unavailable as error:
            raise PartlySent(sent=sent, refused=refused, cause=error) from error
        except DeadLetterError as error:
            refused[place] = error
        else:
            sent.append(place)
    if refused:
        raise PartlySent(sent=sent, refused=refused)


# --- Tasks ---

T = TypeVar("T")


class EngineTasks:
    """
    Tasks of one engine that run to their end, even if nobody waits for them any more.

    A statement that is cancelled half-way may have been carried out or not.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def run_to_end(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Start some work; cancelling the returned future does not stop it."""
        return asyncio.shield(self.run(work))

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start some work that ends when its task is cancelled."""
        try:
            self.check_open()
        except DeadLetterError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self, patience: float) -> None:
        """Accept no more work, and cancel what is not done after `patience` seconds."""
        self._is_closed = True
        if self._running:
            await asyncio.wait(self._running, timeout=patience)
        late = list(self._running)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def check_open(self) -> None:
        """Raise an error if the engine is closed, or was opened before a fork."""
        if self._pid != os.getpid():
            raise opened_before_fork()
        if self._is_closed:
            raise Unavailable("the engine is closed: open it again")

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # so that asyncio does not report it as never retrieved


def opened_before_fork() -> ConfigError:
    """Return the error for an engine that a child process has inherited."""
    return ConfigError(
        "this engine was opened before a fork and cannot be used in the child:"
        " open it again there, after the fork"
    )
