"""
The context of every command: the office, the user, and how output is written.

Results go to standard output and everything else to standard error, so that output can
be piped.
"""

import getpass
import os
import shlex
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.text import Text

from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.core.letter import By
from deadletter.core.message import Message
from deadletter.core.redact import redact
from deadletter.core.text import clean, clean_json, encode_document, is_word
from deadletter.office.office import Office
from deadletter.office.office_protocol import OfficeProtocol
from deadletter.ports import Clock, Engine
from deadletter.settings import Settings, load_settings
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import Paired, file_of, key_ring, opened
from deadletter.wiring.foreign import Ways

NAME: Final = "DLQ_TOKEN"
_MOST: Final = 4096  # characters


def given_token(environ: Mapping[str, str]) -> str | None:
    """
    Return the token in DLQ_TOKEN, or in the file that DLQ_TOKEN_FILE names.

    Raises ConfigError if other users may read the file, as ssh does for its keys.
    """
    if token := environ.get(NAME, "").strip():
        return _checked(token, NAME)
    name = environ.get(f"{NAME}_FILE")
    return _read(Path(name)) if name else None


def _read(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        with file.open(encoding="utf-8") as opened:
            token = opened.read(_MOST).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token in {file}: {error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{file} holds a token and other users may read it: run chmod 600 {file}")
    if not token:
        raise ConfigError(f"{file} must contain a token, but it is empty")
    return _checked(token, str(file))


def _checked(token: str, where: str) -> str:
    if not is_word(token):
        raise ConfigError(
            f"{where} does not contain a valid token: a token is one word of ASCII,"
            " without spaces or line breaks"
        )
    return token


if TYPE_CHECKING:
    from deadletter.app import App
    from deadletter.client import Client, QueueClient

PIPE_WIDTH: Final = 160  # columns if output is not a terminal and COLUMNS is not set


class Desk:
    """The settings, output and connections of one command."""

    def __init__(
        self,
        *,
        url: str | None = None,
        office: str | None = None,
        server: str | None = None,
        as_json: bool = False,
        actor: str | None = None,
    ) -> None:
        self.as_json = as_json
        self.clock: Clock = SystemClock()
        self.dice = SystemDice()
        self.actor = actor or f"{getpass.getuser()}@{socket.gethostname()}"
        self._given_actor = actor
        self.given_url = url  # on the command line
        self.given_office = office
        self._given_server = server

    @cached_property
    def settings(self) -> Settings:
        """Return the settings, read once."""
        return load_settings(environ=os.environ)

    @cached_property
    def url(self) -> str:
        """Return the URL of the engine."""
        return self.given_url or self.settings.url

    @cached_property
    def office_url(self) -> str | None:
        """Return the URL of the office, if one is named."""
        return self.given_office or (None if self.given_url else self.settings.office)

    @cached_property
    def out(self) -> Console:
        """Return the console for results: standard output."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Return the console for everything else: standard error."""
        return _console(stderr=True)

    @property
    def is_watched(self) -> bool:
        """Return whether a person sees the output while the command runs."""
        return self.err.is_terminal and not self.as_json

    @cached_property
    def dlq(self) -> str:
        """Return how commands for the same office begin, for hints."""
        given = {
            "--url": self.given_url,
            "--office": self.given_office,
            "--server": self._given_server,
        }
        words = ["dlq"]
        for option, value in given.items():
            words += [option, _shown(value)] if value else []
        return " ".join(words)

    def by(self, reason: str = "") -> By:
        """Return who runs this command, and the reason, for the audit."""
        return By(self.actor, reason)

    def file(self) -> Path | None:
        """Return the file of the office, if its store is a file."""
        return file_of(self.office_url or self.url)

    @cached_property
    def server(self) -> str | None:
        """Return the URL of the server to use instead of an engine, if one is named."""
        if self._given_server and (self.given_url or self.given_office):
            raise ConfigError("--server cannot be combined with --url or --office: give one")
        if self.given_url or self.given_office:
            return None
        named = self._given_server or os.environ.get("DLQ_SERVER") or None
        if named is not None and self._given_actor is not None:
            raise ConfigError("--actor cannot be combined with --server: the token identifies you")
        return named

    def check_unnamed(self) -> None:
        """Raise ConfigError for --server, which a server cannot use; ignore DLQ_SERVER."""
        if self._given_server is not None:
            raise ConfigError(
                "--server does not apply here: a server serves an engine; name it with --url"
            )

    def check_here(self) -> None:
        """Raise ConfigError if a server is named: the command needs the engine itself."""
        if self.server is not None:
            raise ConfigError(
                "this command works on the engine itself, not through a server: run it"
                " where the engine is, with --url and without --server or DLQ_SERVER"
            )

    @cached_property
    def token(self) -> str | None:
        """Return the token for the server, if there is one."""
        return given_token(os.environ)

    @asynccontextmanager
    async def engine(self, *, make: bool = False) -> AsyncIterator[Engine]:
        """Open the engine; create a missing file only if `make` is true."""
        self.check_here()
        async with opened(self.url, office=self.office_url, make=make) as engine:
            self.name_office(self.office_of(engine))
            yield engine

    def office_of(self, engine: Engine) -> str:
        """Return the URL of the office that was opened with this engine."""
        if self.office_url is None and isinstance(engine, Paired):
            return self.settings.office or self.url
        return self.office_url or self.url

    @asynccontextmanager
    async def here(self, *, make: bool = False) -> AsyncIterator[Office]:
        """Open the office of the engine; for commands that need the engine itself."""
        async with self.engine(make=make) as engine:
            assert engine.letters is not None  # every engine is opened with an office
            yield Office(
                engine,
                self.clock,
                self.dice,
                ring=key_ring(engine.letters),
                servers=self.ways,
                fits=self._fits,
                presume_after=self.settings.presume_after,
                alerts=self.settings.alerts,
            )

    @cached_property
    def ways(self) -> Ways:
        """Return the servers of other systems that the settings name."""
        return Ways(self.settings.source_urls, clock=self.clock, home=self.url)

    def _fits(self, mailbox: str, message: Message) -> bool:
        return self.app is None or self.app.fits(mailbox, message)

    @cached_property
    def app(self) -> "App | None":
        """Return the App that the settings name; warn if it cannot be loaded."""
        if self.settings.app is None:
            return None
        from deadletter.loading import load_app  # noqa: PLC0415 -- the runtime

        try:
            return load_app(self.settings.app)
        except ConfigError as error:
            self.warn(f"Bodies are not checked against handlers: {error}")
            return None

    @asynccontextmanager
    async def office(self, *, make: bool = False) -> AsyncIterator[OfficeProtocol]:
        """Open the office: of the server if one is named, otherwise of the engine."""
        if self.server is None:
            async with self.here(make=make) as office:
                yield office
            return
        self.name_office(f"on {self.server}")
        async with self.client(self.server) as client:
            yield client.office

    @asynccontextmanager
    async def client(self, url: str) -> AsyncIterator["Client"]:
        """Connect to the server at `url`, with the token of the environment."""
        from deadletter.client import Client  # noqa: PLC0415 -- needs an extra

        with _explained():
            async with Client(url, token=self.token) as client:
                yield client

    @asynccontextmanager
    async def queue_server(self) -> AsyncIterator["QueueClient"]:
        """Connect to the named queue server, or to the one on this machine."""
        from deadletter.client import QueueClient  # noqa: PLC0415 -- needs an extra

        here = self.settings.serve
        url = self.server or f"http://{here.host}:{here.port}"
        with _explained():
            async with QueueClient(url, token=self.token) as client:
                yield client

    def show(self, what: RenderableType) -> None:
        """Print a table or styled text to standard output."""
        self.out.print(what)

    def tell(self, text: str, style: str = "") -> None:
        """Print one line to standard output."""
        self.out.print(Text(clean(text), style=style), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning to standard error."""
        self.err.print(Text(clean(text), style="dim"), soft_wrap=True)

    def hint(self, text: str) -> None:
        """Print a hint to standard error, if it is a terminal."""
        if self.is_watched:
            self.warn(text)

    def name_office(self, url: str) -> None:
        """Print which office the command uses, unless the output is JSON."""
        if not self.as_json:
            self.warn(f"Office: {redact(url)}")

    def document(self, value: object) -> None:
        """Print one JSON document on one line."""
        text = encode_document(value, enc_hook=str).decode()
        sys.stdout.write(clean_json(text) + "\n")


@contextmanager
def _explained() -> Iterator[None]:
    """Add to errors of a connection what the user can do about them."""
    from deadletter.client.connection import Unauthenticated, Unreachable  # noqa: PLC0415 -- an extra

    try:
        yield
    except Unreachable as error:
        raise Unavailable(
            f"{error}; start a server with `dlq serve`, or name another one with --server"
            " or DLQ_SERVER"
        ) from error
    except Unauthenticated as error:
        raise Refused(
            f"{error}; the command reads it from DLQ_TOKEN, or from the file that"
            " DLQ_TOKEN_FILE names"
        ) from error


def _shown(url: str) -> str:
    """Quote a URL for the shell; return … instead if it may contain a secret."""
    parts = urlsplit(url)
    return "…" if "@" in parts.netloc or parts.query else shlex.quote(url)


class _Console(Console):
    """A console that raises BrokenPipeError when the reader has gone away."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    console = _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


AtDesk: TypeAlias = Annotated[Desk, Parameter(parse=False)]
"""The type of the parameter through which a command receives its desk."""
