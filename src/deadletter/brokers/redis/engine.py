"""The engine on Redis or Valkey: the format of messages, mailboxes and ledger."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import structs
from msgspec.structs import replace

from deadletter.brokers.redis_common.address import ServerOptions, address_of, url_form
from deadletter.brokers.redis_common.mailboxes import (
    Change,
    Listed,
    MailboxClient,
    Mailboxes,
    MailboxRegistry,
    MailboxSink,
    MailboxSource,
    WakeSignal,
    decoded,
    encoded,
)
from deadletter.brokers.redis_common.script_runner import (
    Argument,
    Now,
    ScriptRunner,
    seconds,
    server_time,
    when_stored,
)
from deadletter.brokers.redis_common.server import connect_cluster, connect_server, inspect_server
from deadletter.core.ids import CORRUPT
from deadletter.core.message import Delivery, Message, escaped, restored
from deadletter.kit import EPOCH, MailboxEngine, micros
from deadletter.ports.broker import Fate, QueueInfo, QueueOptions
from deadletter.ports.features import Durability, Features

from .ledger import RedisLedger
from .scripts import ADOPT, PURGE, REGISTRY, TO_SEND, VERBS, WAKE, WAKE_ALONE, Keys

_NONE: Final = b"-"  # in a state
_MARK: Final = b"\xa3sum\xce"  # the last field: a checksum of all that is before it
_ROOM: Final = 0xFFFF_FFFF  # of four bytes, for the checksum
_WHOLE: Final = 0x2144_DF1C  # the CRC of anything with its own CRC, low byte first

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Message]).decode
_FIELDS: Final = Message.__struct_fields__
_USUAL: Final = structs.astuple(Message(id="", body=b"", sent_at=EPOCH))[3:]


def packed(message: Message) -> bytes:
    """Return a message as it is stored, with a checksum, without default values."""
    values = structs.astuple(message)
    fields = {"id": values[0], "body": values[1], "sent_at": values[2]}
    if values[3:] != _USUAL:
        rest = zip(_FIELDS[3:], values[3:], _USUAL, strict=True)
        fields |= {name: value for name, value, usual in rest if value != usual}
    try:
        fields["sum"] = _ROOM
        content = _encode(fields)[:-4]
    except UnicodeEncodeError:
        return packed(escaped(message))
    return content + crc32(content).to_bytes(4, "little")


def sent_at(stored: bytes) -> datetime | None:
    """Return when a stored message was sent; None if it is unreadable."""
    try:
        return _unpacked([stored])[0].sent_at
    except msgspec.MsgspecError:
        return None


def deliveries(
    mailbox: str, token: str, said: Sequence[Any], *, first: datetime | None
) -> list[Delivery]:
    """
    Return the deliveries of a claim: sequence numbers, messages, states and histories.

    Messages that were never claimed before have no states: it is their first attempt,
    made at `first`. An unreadable message is delivered with its stored bytes as body.
    """
    seqs, stored, states, stories = said
    corrupt = not all(crc32(one) == _WHOLE or _has_no_sum(one) for one in stored)
    try:
        messages = [] if corrupt else _unpacked(stored)
    except msgspec.MsgspecError as error:
        if len(seqs) == 1:
            return [_damaged(mailbox, token, said, first, str(error))]
        corrupt = True
    if corrupt:
        if len(seqs) > 1:
            alone = [[part[n : n + 1] for part in said] for n in range(len(seqs))]
            return [
                delivery
                for one in alone
                for delivery in deliveries(mailbox, token, one, first=first)
            ]
        return [_corrupt(mailbox, token, said, first)]
    if not states:
        return [
            Delivery(
                message=message, mailbox=mailbox, first_received_at=first, receipt=(seq, token)
            )
            for seq, message in zip(seqs, messages, strict=True)
        ]
    usual = Delivery(message=messages[0], mailbox=mailbox, first_received_at=first, receipt=None)
    told = stories or [None] * len(seqs)
    return [
        _delivery(structs.replace(usual, message=message, receipt=(seq, token)), state, story)
        for seq, message, state, story in zip(seqs, messages, states, told, strict=True)
    ]


def _unpacked(stored: Sequence[bytes]) -> list[Message]:
    found = _decode(b"\xdd" + len(stored).to_bytes(4) + b"".join(stored))
    return [restored(message) if message.headers else message for message in found]


def _has_no_sum(stored: bytes) -> bool:
    """Return whether a message was stored without a checksum; it is accepted as it is."""
    return stored[-9:-4] != _MARK


def _corrupt(mailbox: str, token: str, said: Sequence[Any], first: datetime | None) -> Delivery:
    found = _damaged(mailbox, token, said, first, "")
    return structs.replace(found, unreadable=CORRUPT, corrupt=True)


def _damaged(
    mailbox: str, token: str, said: Sequence[Any], first: datetime | None, why: str
) -> Delivery:
    (seq,), (stored,), states, stories = said
    usual = Delivery(
        message=Message(id=f"unreadable-{seq.decode()}", body=stored, sent_at=first or EPOCH),
        mailbox=mailbox,
        first_received_at=first,
        receipt=(seq, token),
    )
    found = _delivery(usual, states[0] if states else b"", next(iter(stories), None))
    return structs.replace(found, unreadable=f"what is stored cannot be read: {why}")


def _delivery(usual: Delivery, state: bytes, story: bytes | None) -> Delivery:
    if not state:
        return usual
    _, _, attempts, spared, flags, first_at, _, expires_at = state.split(b" ")
    message = usual.message
    if expires_at != _NONE and message.expires_at is None:
        message = structs.replace(message, expires_at=when_stored(expires_at))
    return Delivery(
        message=message,
        mailbox=usual.mailbox,
        attempt=int(attempts),
        spared=int(spared),
        suspect=int(flags) % 2 == 1,
        first_received_at=None if first_at == _NONE else when_stored(first_at),
        history="" if story is None else story.decode(),
        receipt=usual.receipt,
    )


FEATURES: Final = Features(
    engine="redis",
    durability=Durability.POWER_SAFE,  # with appendfsync always
    keeps_letters=False,
)


_LEAVING: Final = b"-"
_CENTURY: Final = 36_525 * 86_400.0  # seconds; no expiry is further away


class Registry(MailboxRegistry):
    """
    The list of mailboxes with one prefix.

    It may be on another node of a cluster than the mailboxes. So a mailbox is listed
    before it accepts messages, and removed after it has stopped accepting them: every
    message is in a listed mailbox.
    """

    script = REGISTRY

    def __init__(self, runner: ScriptRunner, keys: Keys) -> None:
        super().__init__(runner, keys.registry)
        self.keys = keys

    async def join(self, name: str) -> None:
        """Make a mailbox accept messages; add it to the list if it is missing."""
        usual = encoded(QueueOptions(name=name))
        version, options = await self._ask("join", name, usual)
        await self._adopt(decoded(options), int(version))

    async def change(self, change: Change) -> None:
        """Change options; start over if they were changed meanwhile."""
        await self._change(change, leaving=None)

    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox and change others with it; return how many messages it had."""
        await self._change(change, leaving=name)
        purged = await self._runner.timed(PURGE, self.keys.mailbox(name))
        await self._ask("leave", name)
        return int(purged)

    async def _change(self, change: Change, *, leaving: str | None) -> None:
        version, said = b"", 0
        changed: Listed = {}
        while not said:
            version, listed = await self._read()
            changed = change(listed)
            pairs: list[str | bytes] = []
            for name, options in changed.items():
                mark = _LEAVING if name == leaving else b""
                pairs += name, mark + encoded(options)
            said = await self._ask("change", version, *pairs)
        for name, options in changed.items():
            if name != leaving:
                await self._adopt(options, said)

    async def _adopt(self, options: QueueOptions, version: int) -> None:
        expiry = options.expire_after
        life = "" if expiry is None else seconds(min(expiry, _CENTURY))
        keys = self.keys.mailbox(options.name)
        await self._runner.timed(ADOPT, keys, version, life)

    def _options(self, stored: bytes) -> QueueOptions:
        return super()._options(stored.removeprefix(_LEAVING))


class Mailbox(MailboxClient):
    """Access to one mailbox."""

    verbs = VERBS
    keys_to_send = TO_SEND

    def __init__(self, runner: ScriptRunner, registry: Registry, name: str) -> None:
        keys = registry.keys.mailbox(name)
        signals = WakeSignal(keys[WAKE]), WakeSignal(keys[WAKE_ALONE])
        super().__init__(runner, registry, name, keys=keys, signals=signals)

    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """Return the deliveries of a claim, from the answer of the script."""
        return deliveries(self.name, token, said, first=first)


class RedisSink(MailboxSink):
    """Sink of one mailbox."""

    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """Return whether any message expires, then all messages, each with its expiry if so."""
        expiring = any(message.expires_at is not None for message in messages)
        args: list[Argument] = [int(expiring)]
        for message in messages:
            args.append(packed(message))
            if expiring:
                expires = message.expires_at
                args.append("" if expires is None else micros(expires))
        return args


class RedisSource(MailboxSource):
    """Source of one mailbox."""


_COUNTS: Final = ("sent", *(fate.value for fate in Fate))


class RedisBroker(Mailboxes[Mailbox]):
    """All mailboxes with one prefix."""

    def __init__(self, runner: ScriptRunner, registry: Registry, features: Features) -> None:
        super().__init__(runner, lambda name: Mailbox(runner, registry, name), registry, features)

    def source(self, mailbox: str) -> RedisSource:
        """Return the source of a mailbox, which is created if it is missing."""
        return RedisSource(self._mailbox(mailbox), self.features)

    def sink(self, mailbox: str) -> RedisSink:
        """Return the sink of a mailbox, which is created if it is missing."""
        return RedisSink(self._mailbox(mailbox))

    async def ready(self, mailbox: str) -> int:
        """Return how many messages of a mailbox are due."""
        client = self._mailbox(mailbox)
        said = await client.ask(client.verbs.count)
        return int(said[0])

    async def reconnect(self) -> None:
        """Close all connections; later calls open others."""
        await self._runner.reconnect()

    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """Return the counts of a mailbox."""
        ready, delayed, claimed, suspects, head, pairs = said
        counts = {
            name.decode(): int(number)
            for name, number in zip(pairs[::2], pairs[1::2], strict=True)
            if name.decode() in _COUNTS
        }
        return QueueInfo(
            options=options,
            ready=ready,
            delayed=delayed,
            claimed=claimed,
            suspects=suspects,
            oldest_at=sent_at(head) if head else None,
            tally={"sent": 0, **counts},
        )


class Options(ServerOptions, frozen=True, kw_only=True):
    """Parameters of the URLs."""

    prefix: str = "dlq"  # of all keys


URL: Final = url_form("Redis", Options, "redis", "valkey")


class RedisEngine(MailboxEngine):
    """Mailboxes and ledger on one server or cluster. It keeps no letters."""

    def __init__(self, runner: ScriptRunner, keys: Keys, features: Features) -> None:
        super().__init__(RedisBroker(runner, Registry(runner, keys), features), features)
        self.ledger = RedisLedger(runner, keys)
        self._runner = runner

    async def close(self) -> None:
        """Finish the tasks in progress and close all connections."""
        await self._runner.close()


async def connect(url: str, *, now: Now = server_time) -> RedisEngine:
    """Open the engine of a URL; tests pass a clock as `now`."""
    said = URL.read(url)
    address, keys = address_of(said), Keys(said.options.prefix)
    server = await inspect_server(address)
    features = replace(FEATURES, durability=server.durability)
    connect_to = connect_cluster if server.in_cluster else connect_server
    return RedisEngine(connect_to(address, now), keys, features)
