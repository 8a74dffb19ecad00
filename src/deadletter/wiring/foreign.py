"""Servers of other systems: dead queues to drain, and the way back for replays."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound, PartlySent, Refused
from deadletter.core.events import Observer
from deadletter.core.message import Message
from deadletter.core.redact import redact, unreadable
from deadletter.intake.dialects import NOBODY, Trusted, origin_of
from deadletter.kit import missing_client
from deadletter.ports import (
    Clock,
    CopyFinder,
    Dice,
    Drain,
    Foreign,
    KeepsIds,
    LetterStore,
    OutcomeProbe,
    Sink,
)
from deadletter.runtime.drain_loop import Intake
from deadletter.system import SystemClock

from .engines import key_ring

Opener: TypeAlias = Callable[..., Awaitable[Foreign]]

# Of each server: module, function, the extra that installs its client, and the kinds of
# letters that can return to it.
_SERVERS: Final = {
    "sqs": ("sqs", "open_sqs", "sqs", ("sqs",)),
    "amqp": ("rabbitmq", "open_rabbitmq", "rabbitmq", ("rabbitmq",)),
    "kafka": ("kafka", "open_kafka", "kafka", ("kafka",)),
    "redis": ("redis", "open_redis", "redis", ("celery", "dramatiq", "rq", "bullmq")),
    "nats": ("nats", "open_nats", "nats", ("nats",)),
}
_KEEP_IDS: Final = frozenset({"bullmq"})  # kinds of letters with ids of their own
_SCHEMES: Final = {
    **{name: name for name in _SERVERS},
    "sqs+http": "sqs",
    "sqs+https": "sqs",
    "amqps": "amqp",
    "rediss": "redis",
    "redis+unix": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "valkey+unix": "redis",
    "tls": "nats",
}


@asynccontextmanager
async def opened_foreign(url: str, *, clock: Clock | None = None) -> AsyncIterator[Foreign]:
    """Open a server with dead queues, and close it afterwards."""
    module, function, extra, _ = _server(url)
    try:
        opener: Opener = getattr(import_module(f"deadletter.brokers.{module}.drain"), function)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deadletter"):
            raise
        raise missing_client(urlsplit(url).scheme, extra) from error
    foreign = await opener(url, clock=clock or SystemClock())
    try:
        yield foreign
    finally:
        await foreign.close()


class WayBack:
    """
    The way back to the server that letters were drained from.

    Only letters of this kind of server are sent, and only to mailboxes of the named
    server. The content of a message cannot select another server.
    """

    def __init__(self, foreign: Foreign, url: str) -> None:
        self._foreign = foreign
        self._kinds = _server(url)[3]

    def check(self, message: Message, mailbox: str) -> None:
        """Raise Refused for a message that cannot return to this server."""
        _check_fits(self._kinds, message, mailbox)

    @property
    def probe(self) -> OutcomeProbe | None:
        """Return the server, if it can report outcomes of copies."""
        return self._foreign if isinstance(self._foreign, OutcomeProbe) else None

    @property
    def finder(self) -> CopyFinder | None:
        """Return the server, if it can report which copies have arrived."""
        return self._foreign if isinstance(self._foreign, CopyFinder) else None

    def sink(self, mailbox: str) -> Sink:
        """Return a sink for one mailbox of the server."""
        return _Checked(self._foreign.sink(mailbox), self.check)

    async def queues(self) -> None:
        """Return None: the mailboxes of the server are not known."""


class Ways:
    """
    The servers of other systems that the settings or the command line name.

    Only these are ever opened; a letter or a request cannot name another server.
    """

    def __init__(self, urls: Mapping[str, str], *, clock: Clock, home: str = "") -> None:
        self._urls = dict(urls)
        self._clock = clock
        self._home = server_label(home) if home else ""

    def named(self, text: str) -> str:
        """
        Return the name of a server given on the command line, as a name or URL.

        The name of a URL that is not in the settings is the URL without its secrets.
        """
        if text in self._urls:
            return text
        if "://" not in text:
            raise self._unknown(text)
        _server(text)
        label = server_label(text)
        name = self._name_of(label) or label
        self._urls[name] = text  # it may have a secret that the settings do not have
        return name

    def url(self, name: str) -> str:
        """Return the URL of a server by its name."""
        if name not in self._urls:
            raise self._unknown(name)
        return self._urls[name]

    def way_of(self, server: str) -> str | None:
        """Return the name of the server that a letter was drained from."""
        if server in self._urls:
            return server
        if not server:
            return None
        return self._name_of(server) or ("" if server == self._home else None)

    def check(self, name: str, message: Message, mailbox: str) -> None:
        """Raise Refused for a message that cannot return to the server of this name."""
        _check_fits(_server(self.url(name))[3], message, mailbox)

    async def ids_in_use(
        self, name: str, messages: Sequence[tuple[str, Message]]
    ) -> Sequence[bool]:
        """Return for each message whether another one on the server has its id."""
        origins = (origin_of(message) for _, message in messages)
        if any(one is not None and one.kind in _KEEP_IDS for one in origins):
            async with opened_foreign(self.url(name), clock=self._clock) as foreign:
                if isinstance(foreign, KeepsIds):
                    return await foreign.ids_in_use(messages)
        return [False] * len(messages)

    @asynccontextmanager
    async def open(self, name: str, *, new_ids: bool = False) -> AsyncIterator[WayBack]:
        """Open the way back to a server, and close it afterwards."""
        url = self.url(name)
        async with opened_foreign(url, clock=self._clock) as foreign:
            way = foreign.with_new_ids() if new_ids and isinstance(foreign, KeepsIds) else foreign
            yield WayBack(way, url)

    def _name_of(self, label: str) -> str:
        labels = ((name, server_label(url)) for name, url in self._urls.items())
        return next((name for name, one in labels if one == label), "")

    def _unknown(self, name: str) -> ConfigError:
        known = ", ".join(sorted(self._urls)) or "none"
        return ConfigError(
            f"there is no source named {_plain(name)!a}; the settings have {known}. Add"
            " [sources.NAME] with its url to deadletter.toml, or give --through URL"
        )


def server_label(url: str) -> str:
    """
    Return the URL of a server without secrets, as its name.

    Raises `ConfigError` for a port that is not a number: it may be part of a password.
    """
    parts = urlsplit(url)
    hosts, path = parts.netloc.rpartition("@")[2], parts.path
    if hosts and "@" in path:  # a slash of a password that is not percent-encoded
        hosts, slash, path = path.rpartition("@")[2].partition("/")
        path = slash + path
    for host in hosts.split(","):
        port = host.rpartition("]")[2].partition(":")[2]
        if port and not port.isdecimal():
            raise unreadable(parts.scheme)
    return f"{parts.scheme.lower()}://{hosts.lower()}{path.rstrip('/')}"


def _plain(name: str) -> str:
    """Return a name, which may be a malformed URL, without a possible password."""
    return redact(name.rpartition("@")[2].partition("?")[0])


class _Checked:
    """A sink that sends only messages that can return to its server."""

    def __init__(self, sink: Sink, check: Callable[[Message, str], None]) -> None:
        self.mailbox = sink.mailbox
        self._sink = sink
        self._check = check

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send the messages that pass the check; raise PartlySent for the others."""
        refused: dict[int, DeadLetterError] = {}
        accepted: list[int] = []
        for index, message in enumerate(messages):
            try:
                self._check(message, self.mailbox)
            except Refused as error:
                refused[index] = error
            else:
                accepted.append(index)
        try:
            if accepted:
                await self._sink.send([messages[n] for n in accepted], delay=delay)
        except PartlySent as error:
            refused |= {accepted[n]: why for n, why in error.refused.items()}
            raise PartlySent(
                sent=(accepted[n] for n in error.sent), refused=refused, cause=error.cause
            ) from error
        if refused:
            raise PartlySent(sent=accepted, refused=refused)


def _check_fits(kinds: Sequence[str], message: Message, mailbox: str) -> None:
    origin = origin_of(message)
    if origin is None or origin.kind not in kinds:
        where = "here" if origin is None else f"in {origin.kind}"
        raise Refused(
            f"message {message.id} was found {where} and cannot return to this server, "
            f"which accepts messages of {', '.join(kinds)}"
        )
    if origin.place == mailbox:
        if origin.claim:
            raise Refused(
                f"message {message.id} was found in {origin.place} and claims to come "
                f"from {origin.claim!a}, which is not trusted: name its mailbox with "
                "--to, or drain with --source"
            )
        raise Refused(
            f"message {message.id} was found in {origin.place} and does not name its "
            "original mailbox: name it with --to"
        )


def _server(url: str) -> tuple[str, str, str, tuple[str, ...]]:
    scheme = _SCHEMES.get(urlsplit(url).scheme)
    if scheme is None:
        known = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        shown = server_label(url) if "://" in url else _plain(url)
        raise ConfigError(f"cannot drain from {shown!a}: use one of {known}")
    return _SERVERS[scheme]


class Dead(Struct, frozen=True):
    """A server of another system, and its dead queues (default: those recognised)."""

    server: str
    places: tuple[str, ...] = ()
    trusted: Trusted = NOBODY


async def dead_places(
    foreign: Foreign, named: Sequence[str], *, may_be_none: bool = False
) -> list[Drain]:
    """
    Return drains of the named dead queues, or of those that are recognised.

    Raises NotFound if there are none, unless `may_be_none`.
    """
    places = named or await foreign.places()
    if not places and not may_be_none:
        raise NotFound(
            "no dead queue was recognised on this server: name it, as in "
            "`dlq drain SERVER orders-dlq`"
        )
    return [foreign.drain(place) for place in dict.fromkeys(places)]


async def intakes(
    stack: AsyncExitStack,
    dead: Sequence[Dead],
    letters: LetterStore,
    *,
    clock: Clock,
    dice: Dice,
    observe: Observer,
    ways: Ways,
) -> list[Intake]:
    """Return a loop for every dead queue; the stack closes their servers."""
    loops: list[Intake] = []
    for one in dead:
        name = ways.named(one.server)
        foreign = await stack.enter_async_context(opened_foreign(ways.url(name), clock=clock))
        loops += [
            Intake(
                drain=drain,
                letters=letters,
                clock=clock,
                dice=dice,
                observe=observe,
                ring=key_ring(letters),
                trusted=one.trusted,
                server=name,
            )
            for drain in await dead_places(foreign, one.places)
        ]
    return loops
