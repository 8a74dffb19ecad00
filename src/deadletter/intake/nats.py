"""
NATS: streams of dead messages, and what consumers have given up on.

The place `advisories` is a stream of ours that catches what servers say when a
consumer's last delivery has failed; the message is fetched by its number before the
limits of its stream remove it. From a work queue it is removed once it is kept;
elsewhere it stays, for other consumers.
"""

import asyncio
from base64 import b64decode
from collections import defaultdict
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

from deadletter.core.dialects import MALFORMED, Found
from deadletter.core.dialects.nats import Advisory, advisory
from deadletter.core.errors import (
    DeadLetterError,
    NotFound,
    Refused,
    Unavailable,
)
from deadletter.core.message import Headers, Message
from deadletter.nats_login import (
    OURS,
    HeaderBlock,
    Login,
    at_start,
    connected,
    farewell,
    knock,
    read_login,
    split,
)
from deadletter.ports import (
    Arrival,
    Clock,
    CopyName,
    CopyState,
    CopyTrace,
    Hidden,
    SentCopy,
)

from .addresses import is_called_dead, near_names
from .nats_copies import Search, Spot, search
from .nats_headers import MSG_ID, Slip, block_of, pack, read_block, slip_of
from .sending import send_in_turn

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
_MOST_COPIES: Final = 100_000  # whose numbers are remembered
_SPARE: Final = 15.0  # seconds of the window for doubles that are not counted on
_KNOWN: Final = (theirs.Error, jetstream.Error, OSError, asyncio.TimeoutError)


async def open_nats(url: str, *, clock: Clock) -> "Nats":
    """The server that a URL names."""
    parts = split(url)
    given = dict(parse_qsl(parts.query))
    login = read_login(parts, given)
    return Nats(login, await _opened(login), clock, given.get("consumer", ""))


async def _opened(login: Login) -> Client:
    complaints: list[Exception] = []

    async def heard(error: Exception) -> None:
        complaints[:] = [error]

    try:
        async with asyncio.timeout(_PATIENCE):
            await knock(login, error_cb=heard)
            return await connected(
                login, exact_headers=True, max_reconnect_attempts=-1, error_cb=heard
            )
    except (*_KNOWN, ValueError) as error:
        raise at_start(complaints[0] if complaints else error, login) from error


class Nats:
    """The streams of one account."""

    def __init__(
        self, login: Login, client: Client, clock: Clock, consumer: str = ""
    ) -> None:
        self._login = login
        self._client = client
        self._clock = clock
        self._consumer = consumer  # whose acknowledgements confirm copies
        self._copies: dict[CopyName, Spot | None] = {}  # None: not found
        self._opening = asyncio.Lock()
        self._is_over = False
        self.jetstream: JetStreamContext = client.jetstream(timeout=_PATIENCE)

    async def connected(self) -> JetStreamContext:
        """
        Return the streams, by another client if the library has closed this one.

        It does so for good when the server refuses what reached it changed.
        """
        async with self._opening:
            if self._client.is_closed and not self._is_over:
                self._client = await _opened(self._login)
                self.jetstream = self._client.jetstream(timeout=_PATIENCE)
            return self.jetstream

    async def places(self) -> Sequence[str]:
        """Streams that are called like dead ones, and what consumers gave up on."""
        configs = await self._configs()
        dead = [
            name
            for name, config in configs.items()
            if is_called_dead(name) and not _is_ours(name, config)
        ]
        return [*dead, *([ADVISORIES] if STREAM in configs else [])]

    async def streams(self) -> list[str]:
        """All streams, by name."""
        return list(await self._configs())

    async def _configs(self) -> dict[str, api.StreamConfig]:
        """How streams are set up, by their names."""
        jetstream = await self.connected()
        found: dict[str, api.StreamConfig] = {}
        with _translated("the streams"):
            while some := await jetstream.streams_info(len(found)):
                found |= {info.config.name or "": info.config for info in some}
        return dict(sorted(found.items()))

    def drain(self, place: str) -> "NatsDrain":
        """The way into a stream."""
        return NatsDrain(self, place)

    def sink(self, mailbox: str) -> "NatsSink":
        """The way back to a subject."""
        return NatsSink(self, mailbox)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Ask for the consumers that gave up on the letters, or the one of the URL.

        A copy is handled once such a consumer has acknowledged everything up to it,
        and the copy was not given up on again. Copies that another process sent are
        looked for in their streams, once; what has left a work queue was handled.
        """
        named = [self._consumer or slip_of(copy.message).consumer for copy in copies]
        await self._search(
            [copy for copy, name in zip(copies, named, strict=True) if name]
        )
        infos: dict[tuple[str, str], api.ConsumerInfo | None] = {}
        states: list[CopyState] = []
        for copy, name in zip(copies, named, strict=True):
            spot = self._copies.get(copy.name) if name else None
            if spot is None:
                states.append(CopyState.UNKNOWN)
                continue
            if (spot.stream, name) not in infos:
                infos[spot.stream, name] = await self._consumer_info(spot.stream, name)
            states.append(await self._state(infos[spot.stream, name], spot))
        return states

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Look into the streams for copies, by the letters that they carry.

        A copy that is sent again within the stream's window for doubles is dropped by
        the server, so nobody needs to look for it.
        """
        now = self._clock.now()
        windows: dict[str, float | None] = {}
        for copy in copies:
            if copy.mailbox not in windows:
                info = await self._stream_of(copy.mailbox)
                window = None if info is None else info.config.duplicate_window
                windows[copy.mailbox] = window
        late = [
            copy
            for copy in copies
            if (window := windows[copy.mailbox]) is not None
            and (now - copy.sent_at).total_seconds() > window - _SPARE
        ]
        searches = await self._search(late)
        names = {copy.name for copy in late}
        return [
            self._trace(copy, searches.get(copy.mailbox, Search()))
            if copy.name in names
            else CopyTrace(Arrival.MISSING)
            for copy in copies
        ]

    def _trace(self, copy: SentCopy, done: Search) -> CopyTrace:
        spot = self._copies.get(copy.name)
        if spot is not None and spot.number:
            return CopyTrace(Arrival.ARRIVED, signature=spot.signature)
        if done.is_consumed:
            why = "its stream does not keep what was handled"
            return CopyTrace(Arrival.UNKNOWABLE, why)
        if done.doubt:
            return CopyTrace(Arrival.LOST, done.doubt)
        return CopyTrace(Arrival.MISSING)

    async def _search(self, copies: Sequence[SentCopy]) -> dict[str, Search]:
        """Look for copies that nobody has looked for; what was found, by subject."""
        wanted: defaultdict[str, list[SentCopy]] = defaultdict(list)
        for copy in copies:
            if copy.name not in self._copies:
                wanted[copy.mailbox].append(copy)
        searches: dict[str, Search] = {}
        for subject, some in wanted.items():
            done = Search()
            if (info := await self._stream_of(subject)) is not None:
                since = min(copy.sent_at for copy in some)
                with _translated(subject):
                    done = await search(await self.connected(), info, subject, since)
            searches[subject] = done
            self._copies |= {copy.name: done.gone for copy in some} | done.found
            while len(self._copies) > _MOST_COPIES:
                del self._copies[next(iter(self._copies))]
        return searches

    async def _stream_of(self, subject: str) -> api.StreamInfo | None:
        js = await self.connected()
        try:
            with _translated(subject):
                name = await js.find_stream_name_by_subject(subject)
                info: api.StreamInfo = await js.stream_info(name)
                return info
        except NotFound:
            return None

    async def _state(self, info: api.ConsumerInfo | None, spot: Spot) -> CopyState:
        if info is None or info.ack_floor is None:
            return CopyState.UNKNOWN
        if info.ack_floor.stream_seq < spot.number:
            return CopyState.THERE
        # A floor passes what was given up on, and that stays in a work queue.
        is_there = spot.number and await self._is_left(spot)
        return CopyState.THERE if is_there else CopyState.HANDLED

    async def _is_left(self, spot: Spot) -> bool:
        """Whether a work queue still has a message, which nobody has acknowledged."""
        js = await self.connected()
        try:
            with _translated(spot.stream):
                stream = await js.stream_info(spot.stream)
                if stream.config.retention != api.RetentionPolicy.WORK_QUEUE:
                    return False
                await js.get_msg(spot.stream, spot.number)
        except NotFound:
            return False
        return True

    async def _consumer_info(self, stream: str, name: str) -> api.ConsumerInfo | None:
        jetstream = await self.connected()
        try:
            with _translated(stream):
                info: api.ConsumerInfo = await jetstream.consumer_info(stream, name)
                return info
        except NotFound:
            return None

    def note(self, message: Message, stream: str, number: int) -> None:
        """Remember where a copy is, to tell later whether it was handled."""
        if message.lineage is not None:
            name = (message.lineage.letter_id, message.lineage.generation)
            self._copies[name] = Spot(stream, number)
            if len(self._copies) > _MOST_COPIES:
                del self._copies[next(iter(self._copies))]

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message, headers included."""
        return self._client.max_payload

    async def close(self) -> None:
        """Let go of the connection."""
        self._is_over = True
        await farewell(self._client)


class NatsDrain:
    """One stream, read by a consumer of our own."""

    def __init__(self, server: Nats, place: str) -> None:
        self.place = place
        self._server = server
        self._stream = STREAM if place == ADVISORIES else place
        self._jetstream = server.jetstream
        self._pull: Any = None
        self._queues: dict[str, bool] = {}  # streams: whether they are work queues

    async def depth(self) -> int:
        """How many messages we have not taken yet."""
        await self._open()
        with _translated(self.place):
            info = await self._jetstream.consumer_info(self._stream, _DURABLE)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def hidden(self) -> Hidden:
        """Count what a drain has taken and not acknowledged, as one that died."""
        await self._open()
        with _translated(self.place):
            info = await self._jetstream.consumer_info(self._stream, _DURABLE)
        wait = info.config.ack_wait or _OURS
        return Hidden(info.num_ack_pending or 0, float(wait))

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
            acks = (one.receipt.ack_sync(timeout=_PATIENCE) for one in found)
            await asyncio.gather(*acks)

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
        jetstream = await self._server.connected()
        if self._pull is not None and jetstream is self._jetstream:
            return self._pull
        self._jetstream = jetstream
        try:
            await self._bind(jetstream)
        except NotFound as error:
            near = near_names(self.place, await self._server.streams())
            raise NotFound(
                f"there is no stream {self.place!r} on that server.{near}"
            ) from error
        return self._pull

    async def _bind(self, jetstream: JetStreamContext) -> None:
        with _translated(self.place):
            if self.place == ADVISORIES:
                await jetstream.add_stream(
                    api.StreamConfig(
                        name=STREAM,
                        description=f"{OURS}what consumers have given up on",
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

    async def _read(self, msg: Msg) -> Found:
        if msg.subject.startswith(_SAID):
            said = advisory(msg.data)
            if said is not None:
                return await self._given_up(msg, said)
        number = msg.metadata.sequence.stream
        headers, block = _read(msg.headers)
        id_ = dict(headers).get(MSG_ID, b"").decode("utf-8", "replace")
        return Found(
            kind="nats",
            place=self.place,
            id=id_ or f"{self._stream}/{number}",
            body=msg.data,
            headers=headers,
            at=_utc(msg.metadata.timestamp),
            position=f"{self._stream}/{number}",
            said={
                "subject": msg.subject,
                "stream": self._stream,
                "sequence": str(number),
            },
            raw=pack(Slip(block)),
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
        headers, block = read_block(b64decode(raw.hdrs or b""))
        return structs.replace(
            found,
            source=raw.subject or said.stream,
            body=raw.data or b"",
            headers=headers,
            sent_at=_utc(raw.time),
            said={"subject": raw.subject or ""},
            raw=pack(Slip(block, said.stream, said.consumer)),
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

    def __init__(self, server: Nats, mailbox: str) -> None:
        self.mailbox = mailbox
        self._server = server

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Publish them into the stream that has the subject, confirmed."""
        if self.mailbox.startswith("$") or any(c in self.mailbox for c in "*> "):
            raise Refused(f"{self.mailbox!r} is no subject to send messages to")
        await send_in_turn(messages, self._publish)

    async def _publish(self, message: Message) -> None:
        jetstream = await self._server.connected()
        headers = block_of(message)
        around = 0 if headers is None else len(headers.block)
        most = self._server.max_payload
        if around + len(message.body) > most:
            # The server would end the connection.
            raise Refused(
                f"message {message.id} has {around + len(message.body):,} bytes with"
                f" its headers, and the server takes {most:,}"
            )
        with _translated(self.mailbox):
            acked = await jetstream.publish(self.mailbox, message.body, headers=headers)
        self._server.note(message, acked.stream, acked.seq)


def _read(given: dict[str, str] | None) -> tuple[Headers, bytes]:
    return read_block(given.block) if isinstance(given, HeaderBlock) else ((), b"")


def _is_ours(name: str, config: api.StreamConfig) -> bool:
    """Whether a stream is one of our own engine, whatever its prefix is."""
    return name.startswith("dlq-") or (config.description or "").startswith(OURS)


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
