"""Streams and consumers of mailboxes: names, creation, checks, and the list of mailboxes."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.ports.broker import QueueOptions
from deadletter.ports.features import Clock

from .connection import Link, Sending
from .errors import (
    CONSUMER_EXISTS,
    CONSUMER_NOT_FOUND,
    MESSAGE_NOT_FOUND,
    NAME_IN_USE,
    NOT_UNIQUE,
    STREAM_NOT_FOUND,
    SUBJECTS_OVERLAP,
    WRONG_SEQUENCE,
    RequestRejected,
)

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_ODD_IN_SUBJECT: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST: Final = 180  # still a valid file name with our prefix and suffix
DURABLE: Final = "deadletter"
OURS: Final = "deadletter: "  # begins the description of every stream we create


class MailboxNames(Struct, frozen=True):
    """Names of one mailbox on the server."""

    subject: str
    stream: str
    durable: str
    notes: str  # prefix of the subjects of its delivery notes
    own: bool  # the stream is ours: created and deleted with the mailbox


class Names(Struct, frozen=True):
    """
    All names behind one prefix.

    A mailbox may have any printable name, a stream may not: wildcards, separators and path
    characters are written as =XX. No two mailboxes share a name.
    """

    prefix: str
    stream: str | None = None  # an existing one, whose subjects the mailboxes are
    consumer: str | None = None

    @property
    def book(self) -> str:
        """The stream of our notes and of the list of mailboxes."""
        return f"{self.prefix}-book"

    @property
    def registry(self) -> str:
        """The subject of the list of mailboxes."""
        return f"{self.book}.mailboxes"

    def place(self, mailbox: str) -> MailboxNames:
        """Return the names of a mailbox."""
        plain = _short(_ODD.sub(_hex, mailbox))
        notes = f"{self.book}.of.{plain}"
        if self.stream is None:
            subject = f"{self.prefix}.{_subject(mailbox)}"
            return MailboxNames(subject, f"{self.prefix}-{plain}", DURABLE, notes, own=True)
        if _subject(mailbox) != mailbox:
            raise ConfigError(
                f"the mailbox {mailbox!a} is to be a subject of the stream"
                f" {self.stream}: use letters, digits, -, _ and single dots"
            )
        durable = self.consumer or f"{self.prefix}-{plain}"
        return MailboxNames(mailbox, self.stream, durable, notes, own=False)


def _subject(mailbox: str) -> str:
    empty = mailbox.startswith(".") or mailbox.endswith(".") or ".." in mailbox
    return _short((_ODD if empty else _ODD_IN_SUBJECT).sub(_hex, mailbox))


def _hex(odd: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in odd[0].encode("utf-8", "surrogatepass"))


def _short(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"{name[:100].rstrip('.')}=={sha256(name.encode()).hexdigest()[:40]}"


WORK_QUEUE: Final = "workqueue"
MARGIN: Final = 1.0  # seconds that the server waits beyond a lease
_NANO: Final = 1_000_000_000
_NO_LIMIT: Final = -1


async def make_stream(link: Link, place: MailboxNames, *, replicas: int) -> None:
    """Create the stream of a mailbox; a foreign stream must exist."""
    if not place.own:
        await _check_stream(link, place)
        return
    config = {
        "name": place.stream,
        "description": f"{OURS}the messages of a mailbox",
        "subjects": [place.subject],
        "retention": WORK_QUEUE,
        "storage": "file",
        "discard": "new",  # a full stream rejects new messages and drops none
        "num_replicas": replicas,
        "allow_direct": True,
    }
    try:
        await link.ask(f"STREAM.CREATE.{place.stream}", config)
    except RequestRejected as error:
        if error.code == NAME_IN_USE:  # it exists, and somebody has edited it
            return
        if error.code == SUBJECTS_OVERLAP:
            raise ConfigError(
                f"another stream takes the subject {place.subject} already: use it with"
                " ?stream=NAME in the URL, or choose another ?prefix="
            ) from error
        raise


async def make_consumer(link: Link, place: MailboxNames, lease: float) -> float:
    """
    Create a durable consumer that waits longer than a lease; return how long.

    An existing consumer may wait longer, and must have no delivery limit.
    """
    wanted = link.nanos(lease + MARGIN)
    while True:
        config = await consumer_config(link, place)
        if config is None:
            try:
                await _put_consumer(link, place, _new(place, wanted), "create")
            except RequestRejected as error:
                if error.code == CONSUMER_EXISTS:
                    continue  # another process was faster
                raise _explained(error, place) from error
            waits = wanted
        else:
            _check_consumer(config, place)
            with link.reading():
                waits = int(config["ack_wait"])
            if waits < wanted:
                config["ack_wait"] = waits = wanted
                await _put_consumer(link, place, config, "update")
        return waits / _NANO / link.second


async def consumer_config(link: Link, place: MailboxNames) -> dict[str, Any] | None:
    """Return the configuration of a mailbox's consumer; None if it does not exist."""
    info = await consumer_info(link, place)
    if info is None:
        return None
    with link.reading():
        config: dict[str, Any] = info["config"]
    return config


async def consumer_info(link: Link, place: MailboxNames) -> dict[str, Any] | None:
    """Return the info of a mailbox's consumer; None if it does not exist."""
    try:
        return await link.ask(f"CONSUMER.INFO.{place.stream}.{place.durable}")
    except RequestRejected as error:
        if error.code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise


async def stream_state(link: Link, place: MailboxNames) -> dict[str, Any] | None:
    """Return the state of a mailbox's stream; None if it does not exist."""
    try:
        info = await link.ask(f"STREAM.INFO.{place.stream}", {"subjects_filter": place.subject})
    except RequestRejected as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise
    with link.reading():
        state: dict[str, Any] = info["state"]
    return state


async def stream_info(link: Link, name: str) -> dict[str, Any] | None:
    """Return configuration and state of a stream; None if it does not exist."""
    try:
        return await link.ask(f"STREAM.INFO.{name}")
    except RequestRejected as error:
        if error.code == STREAM_NOT_FOUND:
            return None
        raise


async def get_message(link: Link, stream: str, **request: int | str) -> dict[str, Any] | None:
    """Return a message of a stream, by its number; None if it is not there."""
    try:
        answer = await link.ask(f"STREAM.MSG.GET.{stream}", request)
    except RequestRejected as error:
        if error.code in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise
    with link.reading():
        message: dict[str, Any] = answer["message"]
    return message


async def delete_message(link: Link, stream: str, number: int) -> None:
    """Delete a message of a stream; it may be gone already."""
    try:
        await link.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": number})
    except RequestRejected as error:
        if error.code not in (MESSAGE_NOT_FOUND, STREAM_NOT_FOUND):
            raise


def time_of(text: str) -> datetime:
    """Read a time of the server, to the microsecond; it has up to nine digits."""
    seconds, _, rest = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{seconds}.{rest[:6]:0<6}+00:00")


async def purge(link: Link, stream: str, subject: str) -> int:
    """Delete all messages of a subject; return their number."""
    try:
        answer = await link.ask(f"STREAM.PURGE.{stream}", {"filter": subject})
    except RequestRejected as error:
        if error.code == STREAM_NOT_FOUND:
            return 0
        raise
    return int(answer.get("purged", 0))


async def delete(link: Link, place: MailboxNames) -> int:
    """Delete a mailbox with its messages; return their number."""
    purged = await purge(link, place.stream, place.subject)
    what = (
        f"STREAM.DELETE.{place.stream}"
        if place.own
        else f"CONSUMER.DELETE.{place.stream}.{place.durable}"
    )
    try:
        await link.ask(what)
    except RequestRejected as error:
        if error.code not in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
            raise
    return purged


async def _check_stream(link: Link, place: MailboxNames) -> None:
    try:
        answer = await link.ask("STREAM.NAMES", {"subject": place.subject})
    except RequestRejected as error:
        raise _explained(error, place) from error
    found = answer.get("streams") or []
    if place.stream not in found:
        raise ConfigError(
            f"the stream {place.stream} does not take the subject {place.subject}: make"
            f" it, or add the subject: nats stream edit {place.stream} --subjects=…"
        )


def _new(place: MailboxNames, ack_wait: int) -> dict[str, Any]:
    return {
        "durable_name": place.durable,
        "name": place.durable,
        "filter_subject": place.subject,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": ack_wait,
        "max_deliver": _NO_LIMIT,  # the policy decides when to give up
        "max_ack_pending": _NO_LIMIT,  # waiting retries must not block others
        "replay_policy": "instant",
    }


def gives_up(config: dict[str, Any], place: MailboxNames) -> str | None:
    """Return why a consumer would drop messages; None if it would not."""
    limit = config.get("max_deliver", _NO_LIMIT)
    if limit <= 0:
        return None
    return (
        f"{_called(place)} gives up by itself after {limit} deliveries (max_deliver),"
        " and leaves messages in the stream where nobody sees them: nats consumer edit"
        f" {place.stream} {place.durable} --max-deliver=-1"
    )


def _called(place: MailboxNames) -> str:
    return f"the consumer {place.durable} of the stream {place.stream}"


def _check_consumer(config: dict[str, Any], place: MailboxNames) -> None:
    called = _called(place)
    if problem := gives_up(config, place):
        raise ConfigError(problem)
    if config.get("backoff"):
        raise ConfigError(
            f"{called} has a backoff of its own, which cuts our leases short: create it"
            " again without one"
        )
    if config.get("deliver_subject") or config.get("ack_policy") != "explicit":
        raise ConfigError(
            f"{called} is not a pull consumer with explicit acks: name another one with"
            " ?consumer= in the URL"
        )


async def _put_consumer(
    link: Link, place: MailboxNames, config: dict[str, Any], action: str
) -> None:
    subject = f"CONSUMER.CREATE.{place.stream}.{place.durable}"
    if config.get("filter_subject"):
        subject += f".{config['filter_subject']}"
    body = {"stream_name": place.stream, "config": config, "action": action}
    await link.ask(subject, body)


def _explained(error: RequestRejected, place: MailboxNames) -> Exception:
    if error.code in NOT_UNIQUE:
        return ConfigError(
            f"somebody else reads {place.subject} from the work queue {place.stream}:"
            " name that consumer with ?consumer= in the URL, or delete it"
        )
    return error


_FRESH: Final = 1.0  # seconds that options are cached

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, QueueOptions]).decode

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""The list as it shall be, given the list there is; raises to refuse"""


class Registry:
    """
    The list of mailboxes and their options behind one prefix.

    One entry, changed by compare-and-set: checks against all mailboxes hold, however many
    processes change the list at once.
    """

    def __init__(self, link: Link, names: Names, *, replicas: int, clock: Clock) -> None:
        self._link = link
        self._names = names
        self._replicas = replicas
        self._clock = clock
        self._known: Listed = {}
        self._looked = -_FRESH

    async def make_book(self) -> None:
        """Create the stream of our notes."""
        config: dict[str, Any] = {
            "name": self._names.book,
            "description": f"{OURS}the list of mailboxes, and notes on messages",
            "subjects": [f"{self._names.book}.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_msgs_per_subject": 1,
            "num_replicas": self._replicas,
            "allow_direct": True,
        }
        try:
            await self._link.ask(f"STREAM.CREATE.{self._names.book}", config)
        except RequestRejected as error:
            if error.code != NAME_IN_USE:  # it exists, and somebody has edited it
                raise

    async def read(self) -> Listed:
        """Return options by name."""
        _, listed = await self._read()
        return listed

    async def options(self, name: str) -> QueueOptions:
        """Return the options of a mailbox, at most a second old."""
        if self._clock.monotonic() - self._looked >= _FRESH:
            await self._read()
        return self._known.get(name) or QueueOptions(name=name)

    async def join(self, name: str) -> None:
        """Add a mailbox to the list if it is missing."""
        if name not in (await self.read()):
            await self.change(lambda old: {name: QueueOptions(name=name), **old})

    async def change(self, change: Change) -> None:
        """Change the list; repeat if another process changed it meanwhile."""
        while True:
            version, listed = await self._read()
            changed = change(listed)
            if changed == listed:
                return
            expected = {"Nats-Expected-Last-Subject-Sequence": str(version)}
            entry = Sending(self._names.registry, _encode(changed), expected)
            try:
                await self._link.ask_all([entry])
            except RequestRejected as error:
                if error.code != WRONG_SEQUENCE:
                    raise
            else:
                self._looked = -_FRESH
                return

    async def _read(self) -> tuple[int, Listed]:
        (found,) = await self._link.latest(self._names.book, [self._names.registry])
        version, content = found or (0, b"{}")
        self._known = _decode(content)
        self._looked = self._clock.monotonic()
        return version, self._known
