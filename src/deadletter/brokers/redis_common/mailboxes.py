"""
Mailboxes on a server: their list and options, claims, settlements, sends, sweeps.

When a connection breaks, a call may have taken effect. A repeated call carries the token
of the first one, so that the server can tell it from a new call.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import BackendError, NotFound
from deadletter.core.message import Delivery, Message
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.kit import EPOCH, NoAnswer
from deadletter.ports.broker import Acked, QueueInfo, QueueOptions, Released, Settlement, Swept
from deadletter.ports.features import Features

from .script_runner import (
    Argument,
    Script,
    ScriptRunner,
    Verbs,
    retry_unanswered,
    seconds,
    tokens,
    when_stored,
)

Listed: TypeAlias = Mapping[str, QueueOptions]
Change: TypeAlias = Callable[[Listed], Listed]
"""Returns the options to write, given those that exist; raises to refuse"""

encoded: Final = msgspec.json.Encoder().encode
decoded: Final = msgspec.json.Decoder(QueueOptions).decode


class MailboxRegistry(ABC):
    """All mailboxes with one prefix. In the hash, the field with an empty name is its version."""

    script: ClassVar[Script]  # reads and changes the list

    def __init__(self, runner: ScriptRunner, key: str) -> None:
        self._runner = runner
        self._key = key

    async def read(self) -> Listed:
        """Return options by the name of their mailbox."""
        _, listed = await self._read()
        return listed

    @abstractmethod
    async def join(self, name: str) -> None:
        """Make a mailbox accept messages; add it to the list if it is missing."""

    @abstractmethod
    async def change(self, change: Change) -> None:
        """Change options; start over if they were changed meanwhile."""

    @abstractmethod
    async def leave(self, name: str, change: Change) -> int:
        """Delete a mailbox and change others with it; return how many messages it had."""

    def _options(self, stored: bytes) -> QueueOptions:
        return decoded(stored)

    async def _read(self) -> tuple[bytes, Listed]:
        said = await self._ask("read")
        listed = dict(zip(said[::2], said[1::2], strict=True))
        version = listed.pop(b"", b"0")
        return version, {name.decode(): self._options(options) for name, options in listed.items()}

    async def _ask(self, *args: str | bytes) -> Any:
        return await self._runner.run(self.script, [self._key], *args)


Receipt: TypeAlias = tuple[bytes, str]  # the name on the server, the token of the claim

_UNCLEAR_SETTLEMENTS: Final = 10_000  # settlements to remember whose answer got lost


class Settling:
    """Settlement of the deliveries of one mailbox; a batch is one step, safe to repeat."""

    def __init__(
        self,
        ask: Callable[..., Awaitable[Any]],
        script: Script,
        *before: Argument,
        with_ends: bool = False,
        details: Callable[[Released], tuple[Argument, ...]] = lambda _: (),
    ) -> None:
        self._ask = ask
        self._script = script
        self._before = before  # the first arguments of the script
        self._with_ends = with_ends  # whether the script gets results and histories
        self._details = details  # more arguments for each release
        self._unclear: set[Receipt] = set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Delete or release deliveries; return for each whether it was still ours."""
        if not self._unclear:
            return await self._settle(settlements, again=False)
        answers: dict[int, bool] = {}
        for again in (True, False):
            places = [
                place
                for place, settlement in enumerate(settlements)
                if (settlement.delivery.receipt in self._unclear) is again
            ]
            some = [settlements[place] for place in places]
            answers |= zip(places, await self._settle(some, again=again), strict=True)
        self._unclear.difference_update(s.delivery.receipt for s in settlements)
        return [answers[place] for place in range(len(settlements))]

    async def _settle(self, settlements: Sequence[Settlement], *, again: bool) -> list[bool]:
        if not settlements:
            return []
        args = (*self._before, *self._arguments(settlements))
        try:
            said = await retry_unanswered(
                lambda repeated: self._ask(self._script, int(again or repeated), *args)
            )
        except BaseException:
            # NoAnswer, or cancelled while it goes on.
            if len(self._unclear) < _UNCLEAR_SETTLEMENTS:
                self._unclear.update(s.delivery.receipt for s in settlements)
            raise
        return [answer == 1 for answer in said]

    def _arguments(self, settlements: Sequence[Settlement]) -> list[Argument]:
        """Return arguments: runs with the same token and fate, in the given order."""
        args: list[Argument] = []
        for (token, fate), run in groupby(settlements, _kind):
            given = list(run)
            args += token, fate, len(given)
            for settlement in given:
                args.append(settlement.delivery.receipt[0])
                if isinstance(settlement, Released):
                    args += (*_tail(settlement), *self._details(settlement))
                elif self._with_ends:
                    args += settlement.result or b"", settlement.history or ""
        return args


def _kind(settlement: Settlement) -> tuple[str, str]:
    fate = settlement.fate.value if isinstance(settlement, Acked) else "release"
    return settlement.delivery.receipt[1], fate


def _tail(released: Released) -> tuple[Argument, ...]:
    # A delivery whose handler has run is not a suspect any more. One that comes back
    # without having been run is uncharged, and has no history.
    still_suspect = not released.charged and released.history is None
    return (
        seconds(released.delay),
        int(not released.charged),
        int(still_suspect),
        int(released.history is not None),
        released.history or "",
    )


_UNCLEAR: Final = 100  # sends to remember whose answer got lost


class SendTokens:
    """
    Tokens that keep sends into one mailbox from being doubled.

    The server remembers one token per lane, that of the lane's last send. A send takes a
    free lane. A send without an answer keeps its lane and its token until the same
    messages are sent again.
    """

    def __init__(self) -> None:
        self._tokens = tokens()
        self._free: list[str] = []  # the last token of each
        self._unclear: dict[Hashable, tuple[str, str]] = {}

    @contextmanager
    def reserve(self, what: Hashable) -> Iterator[tuple[str, str]]:
        """Yield a token for this send, and the previous token of its lane."""
        known = self._unclear.pop(what, None) if self._unclear else None
        token, before = known or (next(self._tokens), self._last())
        try:
            yield token, before
        except BackendError as error:
            if isinstance(error, NoAnswer):
                self._remember(what, token, before)
            elif before:
                self._free.append(before)  # the server refused: nothing was sent
            raise
        except BaseException:
            self._remember(what, token, before)  # cancelled: it may still be sent
            raise
        self._free.append(token)

    def _last(self) -> str:
        return self._free.pop() if self._free else ""

    def _remember(self, what: Hashable, token: str, before: str) -> None:
        while len(self._unclear) >= _UNCLEAR:
            self._unclear.pop(next(iter(self._unclear)))
        self._unclear[what] = token, before


class WakeSignal(Struct, frozen=True):
    """A key on which receivers wait for messages."""

    key: str
    wait_command: str = "BLPOP"
    wake_command: tuple[Argument, ...] = ("RPUSH", "1")  # what follows is appended to the key
    name: str = ""  # of the connections that wait on it


class MailboxClient(ABC):
    """Access to one mailbox; every engine reads deliveries in its own way."""

    verbs: ClassVar[Verbs]
    keys_to_send: ClassVar[int | None] = None  # how many of the first keys; None means all

    def __init__(
        self,
        runner: ScriptRunner,
        register: MailboxRegistry,
        name: str,
        *,
        keys: Sequence[str],
        signals: tuple[WakeSignal, WakeSignal],
        settling: Settling | None = None,
    ) -> None:
        self.name = name
        self.runner = runner
        self.keys = keys
        self.send_tokens = SendTokens()
        self._register = register
        self._signals = signals  # the usual one, and the one for suspects
        self.settling = settling or Settling(self.ask, self.verbs.settle)

    async def ask(self, script: Script, *args: Argument) -> Any:
        """Run a script on this mailbox, once."""
        return await self.runner.timed(script, self.keys, *args)

    async def make(self) -> None:
        """Create the mailbox, which is missing or was deleted meanwhile."""
        await self._register.join(self.name)

    @abstractmethod
    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """Return the deliveries of a claim, from the answer of the script."""

    async def wait_for_signal(self, within: float, *, alone: bool) -> None:
        """Wait for a signal, at most `within` seconds."""
        signal = self._signals[alone]
        await self.runner.blocked(signal.wait_command, signal.key, within, signal.name)

    def wake_another(self, *, alone: bool) -> None:
        """Pass a signal that we may have consumed on to another receiver."""
        signal = self._signals[alone]
        command, *rest = signal.wake_command
        self.runner.start(self.runner.command(command, signal.key, *rest))


SLICE: Final = 500  # messages per script, so that other calls are not delayed
_SLACK: Final = 1.0  # seconds by which the two clocks may drift apart meanwhile


class Claim(Struct, frozen=True):
    """A claim that was sent to the server."""

    token: str
    lease: float
    asked_at: float


class MailboxSource:
    """Source of one mailbox."""

    longest: ClassVar[float] = float("inf")  # seconds to wait before looking again

    def __init__(self, client: MailboxClient, features: Features) -> None:
        self.mailbox = client.name
        self.features = features
        self._client = client
        self._tokens = tokens()
        self._lost: list[Claim] = []  # claims without an answer

    async def receive(
        self, *, limit: int, wait: float, lease: float, alone: bool = False
    ) -> Sequence[Delivery]:
        """Take up to `limit` deliveries, waiting up to `wait` seconds for one."""
        if limit < 1:
            return []
        limit = 1 if alone else limit
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            found, due_in = await self._claim(min(limit, SLICE), lease, alone=alone)
            if found:
                return found + await self._more(len(found), limit, lease)
            left = deadline - loop.time()
            if left <= 0:
                return []
            await self._wait_for_signal(min(left, due_in, self.longest), alone=alone)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[bool]:
        """Delete or release deliveries; return for each whether it was still ours."""
        answers: list[bool] = []
        for start in range(0, len(settlements), SLICE):
            answers += await self._client.settling.settle(settlements[start : start + SLICE])
        return answers

    async def extend(self, deliveries: Sequence[Delivery], *, lease: float) -> Sequence[bool]:
        """Extend leases to `lease` seconds from now; return for each whether it is still ours."""
        by = seconds(lease)
        answers: list[bool] = []
        for start in range(0, len(deliveries), SLICE):
            some = deliveries[start : start + SLICE]
            receipts = [part for delivery in some for part in delivery.receipt]
            answers += await self._extend(by, receipts)
        return answers

    async def _extend(self, by: int, receipts: Sequence[Argument]) -> list[bool]:
        said = await retry_unanswered(
            lambda _: self._client.ask(self._client.verbs.extend, by, *receipts)
        )
        return [answer == 1 for answer in said]

    async def _more(self, got: int, limit: int, lease: float) -> list[Delivery]:
        """Claim the rest of a large request, while there is any."""
        more: list[Delivery] = []
        while got == SLICE and (limit := limit - SLICE) > 0:
            try:
                found, _ = await self._claim(min(limit, SLICE), lease, alone=False)
            except BackendError:
                break  # hand out what is claimed already
            more += found
            got = len(found)
        return more

    async def _claim(
        self, limit: int, lease: float, *, alone: bool
    ) -> tuple[list[Delivery], float]:
        """Claim due messages; return them, and the seconds until the next one is due."""
        token, said = await retry_unanswered(lambda _: self._try(limit, lease, alone=alone))
        if len(said) == 1:
            due_in = float(said[0]) / 1_000_000
            return [], float("inf") if due_in < 0 else due_in
        now, *parts = said
        return self._client.deliveries(token, parts, first=when_stored(now)), 0.0

    async def _try(self, limit: int, lease: float, *, alone: bool) -> tuple[str, Any]:
        """Claim once, after undoing earlier claims that got no answer."""
        while self._lost:
            await self._undo(self._lost[-1])
            self._lost.pop()
        claim = Claim(next(self._tokens), lease, asyncio.get_running_loop().time())
        args = (claim.token, seconds(lease), limit, int(alone))
        asking = self._client.runner.begin(self._client.verbs.receive, self._client.keys, *args)
        try:
            said = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # Nobody gets these deliveries: undo the claim.
            self._client.runner.start(self._give_back(asking, claim))
            raise
        except NoAnswer:
            self._lost.append(claim)
            raise
        if said is None:
            await self._client.make()
            return await self._try(limit, lease, alone=alone)
        return claim.token, said

    async def _give_back(self, asking: "asyncio.Task[Any]", claim: Claim) -> None:
        try:
            said = await asking
        except NoAnswer:
            said = None  # it may have claimed some
        if said is None or len(said) > 1:
            await self._undo(claim)

    async def _undo(self, claim: Claim) -> None:
        since = asyncio.get_running_loop().time() - claim.asked_at + _SLACK
        await self._client.ask(
            self._client.verbs.undo, claim.token, seconds(claim.lease), seconds(since)
        )

    async def _wait_for_signal(self, within: float, *, alone: bool) -> None:
        """Wait for a signal, at most `within` seconds."""
        try:
            await self._client.wait_for_signal(within, alone=alone)
        except asyncio.CancelledError:
            # The signal may have come just now: pass it on.
            self._client.wake_another(alone=alone)
            raise


class MailboxSink(ABC):
    """Sink of one mailbox; engines provide the arguments of their script."""

    def __init__(self, client: MailboxClient) -> None:
        self.mailbox = client.name
        self._client = client

    @abstractmethod
    def arguments(self, messages: Sequence[Message]) -> list[Argument]:
        """Return the arguments of the sending script for these messages."""

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none; return when the server has confirmed them."""
        if not messages:
            return
        args, wait = self.arguments(messages), seconds(delay)
        # Delayed messages need the other keys as well, to note when they are due.
        keys = self._client.keys[: None if wait else self._client.keys_to_send]
        with self._client.send_tokens.reserve((tuple(messages), wait)) as (token, before):
            said = (token, before, wait, *args)
            while not await retry_unanswered(lambda _: self._send(keys, *said)):
                await self._client.make()

    async def _send(self, keys: Sequence[str], *said: Argument) -> Any:
        return await self._client.runner.timed(self._client.verbs.send, keys, *said)


B = TypeVar("B", bound=MailboxClient)


class Mailboxes(ABC, Generic[B]):
    """All mailboxes with one prefix; engines provide the access to one of them."""

    def __init__(
        self,
        runner: ScriptRunner,
        new_client: Callable[[str], B],
        register: MailboxRegistry,
        features: Features,
    ) -> None:
        self.features = features
        self._runner = runner
        self._new_client = new_client
        self._register = register
        self._tokens = tokens()
        self._clients: dict[str, B] = {}

    @abstractmethod
    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """Return the counts of a mailbox, from the answer of the script."""

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raise Conflict if it exists with other options."""
        self._mailbox(options.name)  # raises if the name is invalid

        def change(existing: Listed) -> Listed:
            check_creation(options, existing)
            return {options.name: options}

        await self._register.change(change)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

        def change(existing: Listed) -> Listed:
            check_update(options, existing)
            return {options.name: options}

        await self._register.change(change)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return how many messages were deleted with it."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            return {name: existing[name]} | {
                user: structs.replace(existing[user], dead_queue=None) for user in users
            }

        return await self._register.leave(name, change)

    async def queues(self) -> Sequence[QueueInfo]:
        """Return all mailboxes, sorted by name."""
        listed = await self._register.read()
        found = []
        for name, options in sorted(listed.items()):
            client = self._mailbox(name)
            found.append(self.info(options, await client.ask(client.verbs.count)))
        return found

    async def time(self) -> datetime:
        """Return the time on the server."""
        seconds_, micros_ = await self._runner.command("TIME")
        return EPOCH + timedelta(seconds=int(seconds_), microseconds=int(micros_))

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: mailboxes on Redis have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Release deliveries of lost workers; claim what has expired or is out of attempts."""
        listed = await self._register.read()
        dead_queues = {options.dead_queue for options in listed.values()}
        lost, suspects, by = 0, set(), seconds(lease)
        misdated, ahead, at = 0, 0.0, None
        doomed: list[Delivery] = []
        for name, options in listed.items():
            room = min(limit - len(doomed), SLICE)
            # A dead queue's messages neither expire nor run out of attempts.
            mortal = int(name not in dead_queues and room > 0)
            # A token per mailbox: message numbers are unique only within one.
            client, token = self._mailbox(name), next(self._tokens)
            said = await client.ask(
                client.verbs.sweep, token, by, room, options.max_attempts, mortal
            )
            count, waiting, shortened, lead, now, *found = said
            lost, misdated = lost + count, misdated + shortened
            ahead, at = max(ahead, float(lead) / 1_000_000), when_stored(now)
            if waiting:
                suspects.add(name)
            if found:
                doomed += client.deliveries(token, found, first=None)
        return Swept(
            lost, frozenset(suspects), tuple(doomed), misdated=misdated, ahead=ahead, at=at
        )

    def _mailbox(self, name: str) -> B:
        if name not in self._clients:
            check_name(name)
            self._clients[name] = self._new_client(name)
        return self._clients[name]
