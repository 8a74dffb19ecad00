"""The engine on Redis or Valkey: mailboxes and ledger."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from deadletter.brokers.redis_common.address import ServerOptions, address_of, url_form
from deadletter.brokers.redis_common.mailbox import (
    MailboxClient,
    MailboxSink,
    MailboxSource,
    WakeSignal,
)
from deadletter.brokers.redis_common.mailboxes import Mailboxes
from deadletter.brokers.redis_common.registry import (
    Change,
    Listed,
    MailboxRegistry,
    decoded,
    encoded,
)
from deadletter.brokers.redis_common.script_runner import Argument, Now, ScriptRunner, server_time
from deadletter.brokers.redis_common.scripts import micros, seconds
from deadletter.brokers.redis_common.server import connect_cluster, connect_server, inspect_server
from deadletter.core.message import Delivery, Message
from deadletter.ports.broker import Broker, Fate, Postman, QueueInfo, QueueOptions, Undertaker
from deadletter.ports.engine import Ledger
from deadletter.ports.features import Durability, Features
from deadletter.ports.letters import LetterStore

from .ledger import RedisLedger
from .packing import deliveries, packed, sent_at
from .scripts import ADOPT, PURGE, REGISTRY, TO_SEND, VERBS, WAKE, WAKE_ALONE, Keys

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


class RedisEngine:
    """Mailboxes and ledger on one server or cluster. It keeps no letters."""

    def __init__(self, runner: ScriptRunner, keys: Keys, features: Features) -> None:
        self.features = features
        registry = Registry(runner, keys)
        self.broker: Broker = RedisBroker(runner, registry, features)
        self.letters: LetterStore | None = None
        self.ledger: Ledger | None = RedisLedger(runner, keys)
        self.undertaker: Undertaker | None = None
        self.postman: Postman | None = None
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
