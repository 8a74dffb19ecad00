"""URLs of other people's servers become dead places to drain, and ways back."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from deadletter.core.dialects import origin_of
from deadletter.core.errors import ConfigError, Refused
from deadletter.core.message import Message
from deadletter.core.redact import redact
from deadletter.ports import Clock, Foreign, Sink
from deadletter.system import SystemClock

Opener: TypeAlias = Callable[..., Awaitable[Foreign]]

# Where each is: module, function, the extra that brings its client, and the kinds of
# letters that can go back there.
_SERVERS: Final = {
    "sqs": ("sqs", "open_sqs", "sqs", ("sqs",)),
    "amqp": ("rabbitmq", "open_rabbitmq", "rabbitmq", ("rabbitmq",)),
    "kafka": ("kafka", "open_kafka", "kafka", ("kafka",)),
    "redis": ("redis", "open_redis", "redis", ("celery", "dramatiq", "rq", "bullmq")),
    "nats": ("nats", "open_nats", "nats", ("nats",)),
}
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
async def opened_foreign(
    url: str, *, clock: Clock | None = None
) -> AsyncIterator[Foreign]:
    """A server with dead places, closed again afterwards."""
    module, function, extra, _ = _server(url)
    try:
        opener: Opener = getattr(import_module(f"deadletter.intake.{module}"), function)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deadletter"):
            raise
        raise ConfigError(
            f"{urlsplit(url).scheme}:// needs its client: "
            f"pip install 'deadletter[{extra}]'"
        ) from error
    foreign = await opener(url, clock=clock or SystemClock())
    try:
        yield foreign
    finally:
        await foreign.close()


class WayBack:
    """
    The way back to where letters were found, for a replay to send through.

    Only letters that were found on such a server go there, and only to mailboxes of
    the server that was named: nothing a message says leads anywhere else.
    """

    def __init__(self, foreign: Foreign, url: str) -> None:
        self._foreign = foreign
        self._kinds = _server(url)[3]

    def check(self, message: Message, mailbox: str) -> None:
        """Refuse what does not belong there."""
        origin = origin_of(message)
        if origin is None or origin.kind not in self._kinds:
            where = "here" if origin is None else f"in {origin.kind}"
            raise Refused(
                f"message {message.id} was found {where}, so it cannot go back "
                f"there: this way is for {', '.join(self._kinds)}"
            )
        if origin.place == mailbox:
            if origin.claim:
                raise Refused(
                    f"message {message.id} lay in {origin.place} and claims to come "
                    f"from {origin.claim!a}, which nobody vouches for: name its "
                    "mailbox with --to, or drain with --source"
                )
            raise Refused(
                f"message {message.id} does not say where it came from before it lay "
                f"in {origin.place}: name its mailbox with --to"
            )

    def sink(self, mailbox: str) -> Sink:
        """The way back into one mailbox."""
        return _Checked(self._foreign.sink(mailbox), self.check)

    async def queues(self) -> None:
        """Nobody knows all mailboxes of others."""


class _Checked:
    """A sink that takes only what belongs there."""

    def __init__(self, sink: Sink, check: Callable[[Message, str], None]) -> None:
        self.mailbox = sink.mailbox
        self._sink = sink
        self._check = check

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all of them, unless one does not belong there."""
        for message in messages:
            self._check(message, self.mailbox)
        await self._sink.send(messages, delay=delay)


def _server(url: str) -> tuple[str, str, str, tuple[str, ...]]:
    scheme = _SCHEMES.get(urlsplit(url).scheme)
    if scheme is None:
        known = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        raise ConfigError(
            f"nothing can be drained from {redact(url)!r}: use one of {known}"
        )
    return _SERVERS[scheme]
