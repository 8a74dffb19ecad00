"""
Drain of NATS: streams of dead messages, and messages that consumers gave up on.

The place `advisories` is a stream of ours. It stores what servers report when the last
delivery of a consumer has failed. The drain fetches the message by its number before the
limits of its stream remove it. A work queue loses the message once it is stored; other
streams keep it for their other consumers.

Copies that replays sent are found by a search of their stream: each carries its letter and
generation in headers. The search reads messages one by one, independently of the consumers
of the stream, from the time of the first copy to the end, up to a limit.
"""

from base64 import b64decode
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, structs
from nats.aio.msg import Msg

from deadletter.core.errors import ConfigError, NotFound, Refused
from deadletter.core.message import Headers, Message
from deadletter.intake.dialects import MALFORMED, Found, lineage_of
from deadletter.intake.dialects.brokers import Advisory, advisory
from deadletter.kit import is_called_dead, near_names, send_in_turn
from deadletter.ports import Arrival, Clock, CopyName, CopyState, CopyTrace, Hidden, SentCopy

from .address import read_url
from .connection import HeaderBlock, Link, Sending, open_link
from .errors import NAME_IN_USE, STREAM_NOT_FOUND, SUBJECTS_OVERLAP, NoResponder, RequestRejected
from .headers import MSG_ID, MessageExtras, block_of, pack, read_block, slip_of
from .pull import Pull
from .streams import (
    OURS,
    WORK_QUEUE,
    MailboxNames,
    consumer_info,
    delete_message,
    get_message,
    stream_info,
    time_of,
)

MAX_READ: Final = 20_000  # messages that one search reads
_MARGIN: Final = timedelta(seconds=120)  # for differing clocks and slow batches
_LIMITS: Final = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")


class CopyPosition(Struct, frozen=True):
    """Position of a copy: its stream, and its sequence number there."""

    stream: str
    number: int = 0  # 0: the copy has left the stream, so it was processed
    signature: str = ""


class Search(Struct, frozen=True):
    """Copies in a stream, and what their absence means."""

    found: dict[CopyName, CopyPosition] = {}
    gone: CopyPosition | None = None  # of absent copies, if absent means processed
    is_consumed: bool = False  # messages leave the stream once they are processed
    doubt: str = ""  # empty: copies that were not found never arrived


async def search(link: Link, info: dict[str, Any], subject: str, since: datetime) -> Search:
    """Find the copies that a stream received on a subject since a time."""
    config, state = info["config"], info["state"]
    name = str(config["name"])
    is_consumed = config["retention"] != "limits"
    number = start = await _first_since(link, info, subject, since - _MARGIN)
    found: dict[CopyName, CopyPosition] = {}
    doubt = ""
    if not is_consumed and not _is_complete(state, start):
        doubt = f"the stream {name} has removed messages of that time"
    read = 0
    while number <= state["last_seq"]:
        message = await get_message(link, name, seq=number, next_by_subj=subject)
        if message is None:
            break
        read += 1
        if read > MAX_READ:
            doubt = f"the stream {name} has received more than {MAX_READ:,} messages since"
            break
        headers, _ = read_block(b64decode(message.get("hdrs", "")))
        lineage = lineage_of(headers)
        if lineage is not None:
            position = CopyPosition(name, message["seq"], lineage.signature)
            found[lineage.letter_id, lineage.generation] = position
        number = message["seq"] + 1
    means_processed = not doubt and _is_left_when_processed(config)
    gone = CopyPosition(name) if means_processed else None
    return Search(found, gone, is_consumed, doubt)


def _is_left_when_processed(config: dict[str, Any]) -> bool:
    """Tell whether messages leave a stream only when processed, or by hand."""
    has_limits = any(config.get(limit, 0) > 0 for limit in _LIMITS)
    return config["retention"] == WORK_QUEUE and not has_limits


def _is_complete(state: dict[str, Any], start: int) -> bool:
    """Tell whether a stream still has all messages from a number on."""
    if state.get("num_deleted"):
        return False
    first = int(state["first_seq"])
    return first <= 1 or start > first


async def _first_since(link: Link, info: dict[str, Any], subject: str, since: datetime) -> int:
    """Return the number of the first message on a subject at or after a time."""
    name = str(info["config"]["name"])
    low, high = info["state"]["first_seq"], info["state"]["last_seq"] + 1
    while low < high:
        middle = (low + high) // 2
        message = await get_message(link, name, seq=middle, next_by_subj=subject)
        if message is None or time_of(message["time"]) >= since:
            high = middle
        else:
            low = message["seq"] + 1
    return int(low)


ADVISORIES: Final = "advisories"
STREAM: Final = "deadletter-advisories"
SUBJECTS: Final = (
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
    "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
)
_ADVISORY: Final = "$JS.EVENT.ADVISORY.CONSUMER."
_DURABLE: Final = "deadletter-drain"
_LEASE: Final = 300.0  # seconds until taken messages are delivered again
_BATCH: Final = 100  # messages fetched at once
_NEXT: Final = 0.5  # seconds to wait for further messages
_MAX_COPIES: Final = 100_000  # copies whose positions are remembered
_SPARE: Final = 15.0  # seconds of the duplicate window that are not relied on
_NANO: Final = 1_000_000_000


async def open_nats(url: str, *, clock: Clock) -> "Nats":
    """Connect to the server of a URL."""
    address = read_url(url, is_drain=True)
    link = await open_link(address.login, exact_headers=True)
    return Nats(link, clock, address.consumer or "")


class Nats:
    """The streams of one account."""

    def __init__(self, link: Link, clock: Clock, consumer: str = "") -> None:
        self.link = link
        self._clock = clock
        self._consumer = consumer  # its acks confirm copies
        self._positions: dict[CopyName, CopyPosition | None] = {}  # None: not found

    async def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Call the JetStream API, on a new connection if the last one broke."""
        await self.link.connected()
        return await self.link.ask(subject, body)

    async def places(self) -> Sequence[str]:
        """List streams whose names say that they are dead, and the advisories."""
        configs = await self._configs()
        dead = [
            name
            for name, config in configs.items()
            if is_called_dead(name) and not _is_ours(name, config)
        ]
        return [*dead, *([ADVISORIES] if STREAM in configs else [])]

    async def streams(self) -> list[str]:
        """List the names of all streams."""
        return list(await self._configs())

    def drain(self, place: str) -> "NatsDrain":
        """Return the drain of a stream."""
        return NatsDrain(self, place)

    def sink(self, mailbox: str) -> "NatsSink":
        """Return the way back to a subject."""
        return NatsSink(self, mailbox)

    async def look(self, copies: Sequence[SentCopy]) -> Sequence[CopyState]:
        """
        Compare copies with the acks of the consumers that gave up on their letters.

        The URL may name another consumer. A copy is processed once the consumer has
        acknowledged everything up to it, and has not given up on it again. Copies that
        another process sent are searched for in their streams, once. What has left a
        work queue was processed.
        """
        named = [self._consumer or slip_of(copy.message).consumer for copy in copies]
        await self._search([copy for copy, name in zip(copies, named, strict=True) if name])
        infos: dict[tuple[str, str], dict[str, Any] | None] = {}
        states: list[CopyState] = []
        for copy, name in zip(copies, named, strict=True):
            position = self._positions.get(copy.name) if name else None
            if position is None:
                states.append(CopyState.UNKNOWN)
                continue
            consumer = (position.stream, name)
            if consumer not in infos:
                infos[consumer] = await consumer_info(self.link, _consumer_of(*consumer))
            states.append(await self._state(infos[consumer], position))
        return states

    async def find(self, copies: Sequence[SentCopy]) -> Sequence[CopyTrace]:
        """
        Search the streams for copies, by the letters that they carry.

        The server drops a copy that is sent again within the duplicate window of its
        stream, so those need no search.
        """
        now = self._clock.now()
        windows: dict[str, float | None] = {}
        for copy in copies:
            if copy.mailbox not in windows:
                info = await self._stream_of(copy.mailbox)
                window = None if info is None else info["config"].get("duplicate_window", 0)
                windows[copy.mailbox] = None if window is None else window / _NANO
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

    def remember(self, message: Message, stream: str, number: int) -> None:
        """Remember the position of a copy, to tell later whether it was processed."""
        if message.lineage is not None:
            name = (message.lineage.letter_id, message.lineage.generation)
            self._positions[name] = CopyPosition(stream, number)
            self._trim()

    async def close(self) -> None:
        """Disconnect."""
        await self.link.close()

    async def _configs(self) -> dict[str, dict[str, Any]]:
        """Return the configurations of all streams, by name."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            answer = await self.ask("STREAM.LIST", {"offset": len(found)})
            with self.link.reading():
                some = answer.get("streams") or []
                found |= {info["config"]["name"]: info["config"] for info in some}
            if not some:
                return dict(sorted(found.items()))

    def _trace(self, copy: SentCopy, done: Search) -> CopyTrace:
        position = self._positions.get(copy.name)
        if position is not None and position.number:
            return CopyTrace(Arrival.ARRIVED, signature=position.signature)
        if done.is_consumed:
            why = "its stream does not keep what was handled"
            return CopyTrace(Arrival.UNKNOWABLE, why)
        if done.doubt:
            return CopyTrace(Arrival.LOST, done.doubt)
        return CopyTrace(Arrival.MISSING)

    async def _search(self, copies: Sequence[SentCopy]) -> dict[str, Search]:
        """Search for copies of unknown position; return the results by subject."""
        wanted: defaultdict[str, list[SentCopy]] = defaultdict(list)
        for copy in copies:
            if copy.name not in self._positions:
                wanted[copy.mailbox].append(copy)
        searches: dict[str, Search] = {}
        for subject, some in wanted.items():
            done = Search()
            if (info := await self._stream_of(subject)) is not None:
                since = min(copy.sent_at for copy in some)
                with self.link.reading():
                    done = await search(self.link, info, subject, since)
            searches[subject] = done
            self._positions |= {copy.name: done.gone for copy in some} | done.found
            self._trim()
        return searches

    def _trim(self) -> None:
        while len(self._positions) > _MAX_COPIES:
            del self._positions[next(iter(self._positions))]

    async def _stream_of(self, subject: str) -> dict[str, Any] | None:
        answer = await self.ask("STREAM.NAMES", {"subject": subject})
        names = answer.get("streams") or []
        return await stream_info(self.link, names[0]) if names else None

    async def _state(self, info: dict[str, Any] | None, position: CopyPosition) -> CopyState:
        floor = None if info is None else info.get("ack_floor")
        if floor is None:
            return CopyState.UNKNOWN
        if floor.get("stream_seq", 0) < position.number:
            return CopyState.THERE
        # The floor passes messages that were given up on; a work queue keeps those.
        is_there = position.number and await self._is_left(position)
        return CopyState.THERE if is_there else CopyState.HANDLED

    async def _is_left(self, position: CopyPosition) -> bool:
        """Tell whether a work queue still has a message that nobody acknowledged."""
        if not await self.is_work_queue(position.stream):
            return False
        return await get_message(self.link, position.stream, seq=position.number) is not None

    async def is_work_queue(self, stream: str) -> bool:
        """Tell whether a stream exists and drops what was acknowledged."""
        info = await stream_info(self.link, stream)
        return info is not None and info["config"]["retention"] == WORK_QUEUE


class NatsDrain:
    """One stream, read by a consumer of our own."""

    def __init__(self, server: Nats, place: str) -> None:
        self.place = place
        self._server = server
        self._link = server.link
        self._stream = STREAM if place == ADVISORIES else place
        self._pull: Pull | None = None
        self._work_queues: dict[str, bool] = {}  # by stream

    async def depth(self) -> int:
        """Return the number of messages that are not acknowledged."""
        info = await self._info()
        return int(info.get("num_pending", 0)) + int(info.get("num_ack_pending", 0))

    async def hidden(self) -> Hidden:
        """Count what a drain has taken and not acknowledged, as one that died."""
        info = await self._info()
        wait = info["config"].get("ack_wait")
        return Hidden(int(info.get("num_ack_pending", 0)), wait / _NANO if wait else _LEASE)

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        """Take up to `limit` messages; they come again if they are not forgotten."""
        found: list[Found] = []
        wait = max(wait, _NEXT)
        while len(found) < limit:
            some = await self._fetch(min(limit - len(found), _BATCH), wait)
            if not some:
                break
            found += [await self._read(msg) for msg in some]
            wait = _NEXT
        return found

    async def forget(self, found: Sequence[Found]) -> None:
        """Acknowledge messages; remove those given up on from their work queues first."""
        for one in found:
            await self._remove(one)
        await self._link.in_turn([Sending(one.receipt.reply, b"+ACK") for one in found])

    async def hand_back(self, found: Sequence[Found]) -> None:
        """Have messages delivered again at once."""
        await self._link.in_turn([Sending(one.receipt.reply, b"-NAK") for one in found])

    async def close(self) -> None:
        """Stop reading."""
        pull, self._pull = self._pull, None
        if pull is not None:
            await pull.close()

    async def _fetch(self, limit: int, wait: float) -> list[Msg]:
        pull = await self._open()
        try:
            return await pull.take(limit, wait)
        except BaseException:
            self._pull = None
            pull.give_up(self._give_back)
            raise

    def _give_back(self, found: list[Msg]) -> None:
        self._link.start(self._link.in_turn([Sending(msg.reply, b"-NAK") for msg in found]))

    async def _info(self) -> dict[str, Any]:
        await self._open()
        info = await consumer_info(self._link, _consumer_of(self._stream))
        if info is None:
            raise NotFound(f"the stream {self._stream} was deleted")
        return info

    async def _open(self) -> Pull:
        await self._link.connected()
        if self._pull is None:
            if self.place == ADVISORIES:
                await self._catch_advisories()
            await self._make_consumer()
            self._pull = Pull(self._link, _consumer_of(self._stream))
        return self._pull

    async def _catch_advisories(self) -> None:
        """Create the stream that stores advisories from now on."""
        config = {
            "name": STREAM,
            "description": f"{OURS}what consumers have given up on",
            "subjects": SUBJECTS,
            "retention": WORK_QUEUE,
        }
        try:
            await self._server.ask(f"STREAM.CREATE.{STREAM}", config)
        except RequestRejected as error:
            if error.code == SUBJECTS_OVERLAP:
                raise ConfigError(
                    f"another stream stores {SUBJECTS[0]} already, and only one stream of an"
                    f" account can: delete it, or drain it instead ({error})"
                ) from error
            if error.code != NAME_IN_USE:  # it exists, and somebody has edited it
                raise

    async def _make_consumer(self) -> None:
        config = {
            "durable_name": _DURABLE,
            "name": _DURABLE,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": int(_LEASE * _NANO),
            "max_ack_pending": 10_000,
            "replay_policy": "instant",
        }
        body = {"stream_name": self._stream, "config": config}
        try:
            await self._server.ask(f"CONSUMER.CREATE.{self._stream}.{_DURABLE}", body)
        except (RequestRejected, NoResponder) as error:
            if isinstance(error, RequestRejected) and error.code != STREAM_NOT_FOUND:
                raise
            near = near_names(self.place, await self._server.streams())
            raise NotFound(f"there is no stream {self.place!r} on that server.{near}") from error

    async def _read(self, msg: Msg) -> Found:
        if msg.subject.startswith(_ADVISORY):
            about = advisory(msg.data)
            if about is not None:
                return await self._given_up(msg, about)
        number = msg.metadata.sequence.stream
        headers, block = _headers_of(msg.headers)
        id_ = dict(headers).get(MSG_ID, b"").decode("utf-8", "replace")
        return Found(
            kind="nats",
            place=self.place,
            id=id_ or f"{self._stream}/{number}",
            body=msg.data,
            headers=headers,
            at=_stored_at(msg),
            position=f"{self._stream}/{number}",
            said={"subject": msg.subject, "stream": self._stream, "sequence": str(number)},
            raw=pack(MessageExtras(block)),
            receipt=msg,
        )

    async def _given_up(self, msg: Msg, reported: Advisory) -> Found:
        """Fetch the message that an advisory reports."""
        about = {name: str(value) for name, value in structs.asdict(reported).items()}
        found = Found(
            kind="nats",
            place=self.place,
            id=f"{reported.stream}/{reported.stream_seq}",
            source=reported.stream,
            body=b"",
            about=about,
            at=_stored_at(msg),
            receipt=msg,
        )
        message = await get_message(self._link, reported.stream, seq=reported.stream_seq)
        if message is None:
            gone = "limits of its stream had removed it before it could be kept"
            return structs.replace(found, about={**about, MALFORMED: gone})
        with self._link.reading():
            headers, block = read_block(b64decode(message.get("hdrs", "")))
            subject = message["subject"]
            return structs.replace(
                found,
                source=subject,
                body=b64decode(message.get("data", "")),
                headers=headers,
                sent_at=time_of(message["time"]),
                said={"subject": subject},
                raw=pack(MessageExtras(block, reported.stream, reported.consumer)),
            )

    async def _remove(self, one: Found) -> None:
        stream = one.about.get("stream")
        if stream is None or MALFORMED in one.about:
            return
        if stream not in self._work_queues:
            self._work_queues[stream] = await self._server.is_work_queue(stream)
        if self._work_queues[stream]:
            await delete_message(self._link, stream, int(one.about["stream_seq"]))


class NatsSink:
    """The way back to one subject."""

    def __init__(self, server: Nats, mailbox: str) -> None:
        self.mailbox = mailbox
        self._server = server

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Publish messages into the stream of the subject, confirmed."""
        if self.mailbox.startswith("$") or any(c in self.mailbox for c in "*> "):
            raise Refused(f"{self.mailbox!r} is not a subject to send messages to")
        await send_in_turn(messages, self._publish)

    async def _publish(self, message: Message) -> None:
        client = await self._server.link.connected()
        headers = block_of(message)
        size = len(message.body) + (0 if headers is None else len(headers.block))
        if size > client.max_payload:
            # The server would end the connection.
            raise Refused(
                f"message {message.id} has {size:,} bytes with its headers, and the server"
                f" accepts {client.max_payload:,}: raise its max_payload, or send less"
            )
        sending = Sending(self.mailbox, message.body, headers)
        try:
            (answer,) = await self._server.link.ask_all([sending])
        except NoResponder as error:
            raise NotFound(f"there is no stream for {self.mailbox!r} on that server") from error
        with self._server.link.reading():
            self._server.remember(message, answer["stream"], answer["seq"])


def _consumer_of(stream: str, durable: str = _DURABLE) -> MailboxNames:
    return MailboxNames(subject="", stream=stream, durable=durable, notes="", own=False)


def _headers_of(given: dict[str, str] | None) -> tuple[Headers, bytes]:
    return read_block(given.block) if isinstance(given, HeaderBlock) else ((), b"")


def _is_ours(name: str, config: dict[str, Any]) -> bool:
    """Tell whether a stream belongs to our engine, whatever its prefix."""
    return name.startswith("dlq-") or str(config.get("description", "")).startswith(OURS)


def _stored_at(msg: Msg) -> datetime:
    time = msg.metadata.timestamp
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
