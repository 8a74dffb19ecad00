"""
NATS: streams of dead messages, and what consumers have given up on.

The place `advisories` is a stream of ours that catches what servers say when a
consumer's last delivery has failed; the message is fetched by its number before the
limits of its stream remove it. From a work queue it is removed once it is kept;
elsewhere it stays, for other consumers.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import structs
from nats import errors as theirs
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js import errors as jetstream

from deadletter.core.dialects import MALFORMED, Found, lineage_headers, unmarked
from deadletter.core.dialects.nats import Advisory, advisory
from deadletter.core.errors import (
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Headers, Message
from deadletter.nats_login import at_start, connected, farewell, read_login, split
from deadletter.ports import Clock

ADVISORIES: Final = "advisories"
STREAM: Final = "deadletter-advisories"
SUBJECTS: Final = (
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
    "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
)
_SAID: Final = "$JS.EVENT.ADVISORY.CONSUMER."
_DURABLE: Final = "deadletter-drain"
_OURS: Final = 300.0  # seconds that what was taken is ours
_PATIENCE: Final = 5.0
_MSG_ID: Final = "Nats-Msg-Id"
_DEAD: Final = ("dlq", "dlt", "dead", "dead-letters", "dead_letters", "poison")
_KNOWN: Final = (theirs.Error, jetstream.Error, OSError, asyncio.TimeoutError)


async def open_nats(url: str, *, clock: Clock) -> "Nats":
    """The server that a URL names."""
    parts = split(url)
    login = read_login(parts, dict(parse_qsl(parts.query)))
    complaints: list[Exception] = []

    async def heard(error: Exception) -> None:
        complaints[:] = [error]

    try:
        # The client tries for ever, which is right later on, but not at first.
        async with asyncio.timeout(_PATIENCE):
            client = await connected(login, max_reconnect_attempts=-1, error_cb=heard)
    except (*_KNOWN, ValueError) as error:
        raise at_start(complaints[0] if complaints else error, login) from error
    return Nats(client)


class Nats:
    """The streams of one account."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.jetstream: JetStreamContext = client.jetstream(timeout=_PATIENCE)

    async def places(self) -> Sequence[str]:
        """Streams that are called like dead ones, and what consumers gave up on."""
        with _translated("the streams"):
            found = await self.jetstream.streams_info()
        names = [info.config.name or "" for info in found]
        dead = [name for name in names if name.lower().endswith(_DEAD)]
        return [*sorted(dead), *([ADVISORIES] if STREAM in names else [])]

    def drain(self, place: str) -> "NatsDrain":
        """The way into a stream."""
        return NatsDrain(self.jetstream, place)

    def sink(self, mailbox: str) -> "NatsSink":
        """The way back to a subject."""
        return NatsSink(self.jetstream, mailbox)

    async def close(self) -> None:
        """Let go of the connection."""
        await farewell(self._client)


class NatsDrain:
    """One stream, read by a consumer of our own."""

    def __init__(self, jetstream: JetStreamContext, place: str) -> None:
        self.place = place
        self._stream = STREAM if place == ADVISORIES else place
        self._jetstream = jetstream
        self._pull: Any = None
        self._queues: dict[str, bool] = {}  # streams: whether they are work queues

    async def depth(self) -> int:
        """How many messages we have not taken yet."""
        await self._open()
        with _translated(self.place):
            info = await self._jetstream.consumer_info(self._stream, _DURABLE)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Up to `limit` messages, ours for some minutes."""
        pull = await self._open()
        found: list[Found] = []
        patience = max(wait, 0.5)
        while len(found) < limit:
            try:
                with _translated(self.place):
                    some = await pull.fetch(min(limit - len(found), 100), patience)
            except _Nothing:
                break
            found += [await self._read(msg) for msg in some]
            patience = 0.5
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Acknowledge them; given up ones are taken out of their work queue first."""
        with _translated(self.place):
            for one in found:
                await self._remove(one)
            await asyncio.gather(*(one.receipt.ack_sync() for one in found))

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Let them come again at once."""
        with _translated(self.place):
            for one in found:
                await one.receipt.nak()

    async def close(self) -> None:
        """Take no more."""
        pull, self._pull = self._pull, None
        if pull is not None:
            with suppress(*_KNOWN):
                await pull.unsubscribe()

    async def _open(self) -> Any:
        if self._pull is not None:
            return self._pull
        jetstream = self._jetstream
        with _translated(self.place):
            if self.place == ADVISORIES:
                await jetstream.add_stream(
                    api.StreamConfig(
                        name=STREAM,
                        description="deadletter: what consumers have given up on",
                        subjects=list(SUBJECTS),
                        retention=api.RetentionPolicy.WORK_QUEUE,
                    )
                )
            await jetstream.add_consumer(
                self._stream,
                api.ConsumerConfig(
                    durable_name=_DURABLE,
                    ack_policy=api.AckPolicy.EXPLICIT,
                    ack_wait=_OURS,
                    max_ack_pending=10_000,
                ),
            )
            self._pull = await jetstream.pull_subscribe_bind(_DURABLE, self._stream)
        return self._pull

    async def _read(self, msg: Msg) -> Found:
        if msg.subject.startswith(_SAID):
            said = advisory(msg.data)
            if said is not None:
                return await self._given_up(msg, said)
        number = msg.metadata.sequence.stream
        headers = _headers(msg.headers)
        known = dict(headers)
        return Found(
            kind="nats",
            place=self.place,
            id=known.get(_MSG_ID, b"").decode() or f"{self._stream}/{number}",
            body=msg.data,
            headers=headers,
            at=_utc(msg.metadata.timestamp),
            position=f"{self._stream}/{number}",
            reply_to=None,
            receipt=msg,
        )

    async def _given_up(self, msg: Msg, said: Advisory) -> Found:
        """The message that an advisory is about."""
        about = {name: str(value) for name, value in structs.asdict(said).items()}
        found = Found(
            kind="nats",
            place=self.place,
            id=f"{said.stream}/{said.stream_seq}",
            source=said.stream,
            body=b"",
            about=about,
            at=_utc(msg.metadata.timestamp),
            receipt=msg,
        )
        try:
            with _translated(said.stream):
                raw = await self._jetstream.get_msg(said.stream, said.stream_seq)
        except NotFound:
            gone = "limits of its stream had removed it before it could be kept"
            return structs.replace(found, about={**about, MALFORMED: gone})
        return structs.replace(
            found,
            source=raw.subject or said.stream,
            body=raw.data or b"",
            headers=_headers(raw.headers),
            sent_at=_utc(raw.time),
        )

    async def _remove(self, one: Found) -> None:
        stream = one.about.get("stream")
        if stream is None or MALFORMED in one.about:
            return
        with suppress(jetstream.NotFoundError):
            if stream not in self._queues:
                info = await self._jetstream.stream_info(stream)
                retention = info.config.retention
                self._queues[stream] = retention == api.RetentionPolicy.WORK_QUEUE
            if self._queues[stream]:
                await self._jetstream.delete_msg(stream, int(one.about["stream_seq"]))


class NatsSink:
    """The way back to one subject."""

    def __init__(self, jetstream: JetStreamContext, mailbox: str) -> None:
        self.mailbox = mailbox
        self._jetstream = jetstream

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Publish them into the stream that has the subject, confirmed."""
        if self.mailbox.startswith("$") or any(c in self.mailbox for c in "*> "):
            raise Refused(f"{self.mailbox!r} is no subject to send messages to")
        with _translated(self.mailbox):
            for message in messages:
                await self._jetstream.publish(
                    self.mailbox, message.body, headers=_sent(message)
                )


def _sent(message: Message) -> dict[str, str] | None:
    pairs = (*unmarked(message).headers, *lineage_headers(message.lineage))
    headers = {name: value.decode("utf-8", "replace") for name, value in pairs}
    if _MSG_ID in headers:  # otherwise the server would take it for a double
        headers[_MSG_ID] = f"{headers[_MSG_ID]}~{message.generation}"
    return headers or None


def _headers(given: dict[str, str] | None) -> Headers:
    return tuple(
        (name, str(value).encode("utf-8", "surrogateescape"))
        for name, value in (given or {}).items()
    )


def _utc(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


class _Nothing(Unavailable):
    """Nothing came in time."""


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """What the client raises, in our words."""
    try:
        yield
    except _KNOWN as error:
        raise _ours(error, what) from error


def _ours(error: BaseException, what: str) -> DeadLetterError:
    text = str(error) or type(error).__name__
    match error:
        case jetstream.NotFoundError() | jetstream.NoStreamResponseError():
            return NotFound(f"there is no stream for {what!r} on that server")
        case theirs.MaxPayloadError():
            return Refused(f"the message is too large for the server: {text}")
        case jetstream.BadRequestError():
            return Refused(f"{what}: the server refuses: {text}")
        case theirs.BadSubjectError():
            return Refused(f"{what!r} is no subject")
        case theirs.TimeoutError() | asyncio.TimeoutError():
            return _Nothing(f"{what}: no answer from NATS")
    return Unavailable(f"{what}: NATS cannot be reached: {text}")
