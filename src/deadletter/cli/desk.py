"""
The desk a person sits at: which office, who asks, and how answers are written.

Every command is handed one. Results go to standard output, everything said about
them to standard error, so that output can be piped as it is.
"""

import getpass
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from urllib.parse import urlsplit

from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.text import Text

from deadletter.assembly import opened
from deadletter.assembly.engines import check_file, file_of
from deadletter.assembly.foreign import Ways
from deadletter.assembly.pairing import Paired
from deadletter.core.documents import encode_document
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.core.message import Message
from deadletter.core.redact import redact
from deadletter.core.safe import clean, clean_json
from deadletter.ports import Clock, Engine
from deadletter.settings import Settings, load_settings
from deadletter.system import SystemClock, SystemDice

from .local import LocalOffice
from .office import Office
from .token import given_token

if TYPE_CHECKING:
    from deadletter.assembly import App

PIPE_WIDTH: Final = 160  # columns when nobody says how wide the other end is


class Desk:
    """What every command is handed."""

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
        """What is set without touching code."""
        return load_settings(environ=os.environ)

    @cached_property
    def url(self) -> str:
        """The engine this is about."""
        return self.given_url or self.settings.url

    @cached_property
    def office_url(self) -> str | None:
        """Where its letters are, if somebody says."""
        return self.given_office or (None if self.given_url else self.settings.office)

    @cached_property
    def out(self) -> Console:
        """Where results go."""
        return _console(stderr=False)

    @cached_property
    def err(self) -> Console:
        """Where everything else goes."""
        return _console(stderr=True)

    @property
    def is_watched(self) -> bool:
        """Whether a person sees what we say while we work."""
        return self.err.is_terminal and not self.as_json

    @cached_property
    def dlq(self) -> str:
        """How commands begin that ask the same office; for what to type next."""
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
        """Who does this, and why."""
        return By(self.actor, reason)

    def file(self) -> Path | None:
        """The file the office lives in, if it lives in one."""
        return file_of(self.office_url or self.url)

    def check_file(self) -> None:
        """Refuse to go on where the office is a file that is not there."""
        check_file(self.office_url or self.url)

    @cached_property
    def server(self) -> str | None:
        """The server that is asked instead of an engine, if somebody says."""
        if self._given_server and (self.given_url or self.given_office):
            raise ConfigError("--server asks a server, --url an engine: give one")
        if self.given_url or self.given_office:
            return None
        named = self._given_server or os.environ.get("DLQ_SERVER") or None
        if named is not None and self._given_actor is not None:
            raise ConfigError("to a server you are who your token is: leave --actor")
        return named

    def check_unnamed(self) -> None:
        """Refuse --server to who is one; DLQ_SERVER is for those who ask it."""
        if self._given_server is not None:
            raise ConfigError("a server serves an engine, not another server: --url")

    def check_here(self) -> None:
        """Refuse to go on where a server is named: it cannot do this for us."""
        if self.server is not None:
            raise ConfigError(
                "this command works on the engine itself, not through a server: run it"
                " where the engine is, with --url and without --server or DLQ_SERVER"
            )

    @cached_property
    def token(self) -> str | None:
        """Who we are to a server."""
        return given_token(os.environ)

    @asynccontextmanager
    async def engine(self, *, make: bool = False) -> AsyncIterator[Engine]:
        """The engine, open; a file that is not there is made only if asked to."""
        self.check_here()
        async with opened(self.url, office=self.office_url, make=make) as engine:
            self.hint(f"Office: {redact(self._place(engine))}")
            yield engine

    def _place(self, engine: Engine) -> str:
        """Return the URL of the office that was opened with this engine."""
        if self.office_url is None and isinstance(engine, Paired):
            return self.settings.office or self.url
        return self.office_url or self.url

    @asynccontextmanager
    async def here(self, *, make: bool = False) -> AsyncIterator[LocalOffice]:
        """The engine and its letters, open."""
        async with self.engine(make=make) as engine:
            yield LocalOffice(
                engine,
                self.clock,
                self.dice,
                ways=self.ways,
                fits=self._fits,
                presume_after=self.settings.presume_after,
            )

    @cached_property
    def ways(self) -> Ways:
        """The servers of others that settings name."""
        return Ways(self.settings.source_urls, clock=self.clock, home=self.url)

    def _fits(self, mailbox: str, message: Message) -> bool:
        return self.app is None or self.app.fits(mailbox, message)

    @cached_property
    def app(self) -> "App | None":
        """The App that the settings name; one that cannot be loaded is told of."""
        if self.settings.app is None:
            return None
        from deadletter.assembly import load_app  # noqa: PLC0415 -- the runtime

        try:
            return load_app(self.settings.app)
        except ConfigError as error:
            self.warn(f"Bodies are not checked against handlers: {error}")
            return None

    @asynccontextmanager
    async def office(self, *, make: bool = False) -> AsyncIterator[Office]:
        """The office that commands ask: the server's, or the one here."""
        if self.server is None:
            async with self.here(make=make) as office:
                yield office
            return
        from .remote import remote_office  # noqa: PLC0415 -- needs an extra

        self.hint(f"Office: the one of {redact(self.server)}")
        async with remote_office(self.server, self.token) as remote:
            yield remote

    def show(self, what: RenderableType) -> None:
        """Something made for eyes, on standard output."""
        self.out.print(what)

    def tell(self, text: str, style: str = "") -> None:
        """One line on standard output."""
        self.out.print(Text(clean(text), style=style), soft_wrap=True)

    def warn(self, text: str) -> None:
        """What nobody may miss, be it a person or a script: on standard error."""
        self.err.print(Text(clean(text), style="dim"), soft_wrap=True)

    def hint(self, text: str) -> None:
        """What one may want to know or type next; only said to a person."""
        if self.is_watched:
            self.warn(text)

    def document(self, value: object) -> None:
        """One JSON document, on one line."""
        text = encode_document(value, enc_hook=str).decode()
        sys.stdout.write(clean_json(text) + "\n")


def _shown(url: str) -> str:
    """A URL as a word for the shell, unless there may be a secret in it."""
    parts = urlsplit(url)
    return "…" if "@" in parts.netloc or parts.query else shlex.quote(url)


class _Console(Console):
    """A console that leaves it to us what a reader who has gone away means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    console = _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


AtDesk: TypeAlias = Annotated[Desk, Parameter(parse=False)]
"""How a command asks for its desk."""
