"""
The RabbitMQ engine: the mailboxes that this process uses, and limits set by policies.

AMQP shows the arguments of a queue, not the policies for it: those are read from the
management API. Policies are read rather than the effective limits of queues, which are
some seconds late.
"""

import asyncio
import http.client
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct, field, structs

from deadletter.brokers.amqp.address import Address, read_url
from deadletter.brokers.amqp.connection import tls_context
from deadletter.core.errors import BackendError, ConfigError, Conflict, NotFound, Unavailable
from deadletter.core.topology import MAX_ATTEMPTS, check_deletion, check_update, validate
from deadletter.kit import MailboxEngine
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Clock, Durability, Features
from deadletter.ports.letters import Seal

from .connection import Link, translating
from .inbox import Inbox
from .mailbox import Mailbox, RabbitSink, RabbitSource, Sender
from .queues import TOO_FEW, Queues, check, suspects

_T = TypeVar("_T")

_PATIENCE: Final = 5.0  # seconds
_LIMIT: Final = "delivery-limit"
_QUEUES: Final = frozenset({"all", "queues", "quorum_queues"})


class Policy(Struct, frozen=True):
    """A policy for all queues with matching names."""

    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = field(name="apply-to", default="all")

    def is_for(self, queue: str) -> bool:
        """Tell whether it applies to a queue; an unreadable pattern may."""
        if self.apply_to not in _QUEUES:
            return False
        try:
            return re.search(self.pattern, queue) is not None
        except re.error:  # the broker's patterns differ from Python's
            return True


class _Queue(Struct, frozen=True):
    name: str


class Management:
    """The management API of one broker."""

    def __init__(self, address: Address, port: int) -> None:
        self._address = address
        self._port = port

    async def in_the_way(self, mailbox: str, *, attempts: int) -> str | None:
        """Return why policies allow fewer attempts than `attempts`; None if they do not."""
        return _problem(mailbox, await self._policies(), attempts)

    async def all_in_the_way(self) -> Sequence[str]:
        """List problems with policies for all mailboxes that are in use."""
        queues = await self._ask("queues", list[_Queue], "?columns=name")
        names = {queue.name for queue in queues}
        policies = await self._policies()
        found = [_problem(name, policies, 1) for name in sorted(names) if suspects(name) in names]
        return [problem for problem in found if problem is not None]

    async def _policies(self) -> Sequence[Sequence[Policy]]:
        """Return user policies and operator policies; one of each applies to a queue."""
        return [await self._ask(kind, list[Policy]) for kind in ("policies", "operator-policies")]

    async def _ask(self, what: str, kind: type[_T], query: str = "") -> _T:
        path = f"/api/{what}/{quote(self._address.vhost, safe='')}{query}"
        where = f"the management API of RabbitMQ at {self._address.host}:{self._port}"
        try:
            status, said = await asyncio.to_thread(self._get, path)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(
                f"{where} does not answer: is its plugin rabbitmq_management on, and"
                f" its port the one of ?management= in the URL? ({error!r})"
            ) from error
        if status in (401, 403):
            raise ConfigError(
                f"{where} rejected our user: give it the tag `management`, or remove"
                " ?management= from the URL"
            )
        try:
            return msgspec.json.decode(said if status == 200 else b"", type=kind)
        except msgspec.DecodeError as error:
            raise Unavailable(f"{where} answers {path} with {status}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        """Send a request, blocking; redirects are not followed: they could leak our password."""
        address = self._address
        host, port = address.host, self._port
        context = tls_context(address)
        connection = (
            http.client.HTTPConnection(host, port, timeout=_PATIENCE)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
        )
        login = b64encode(f"{address.user}:{address.password}".encode()).decode()
        try:
            connection.request("GET", path, headers={"Authorization": f"Basic {login}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def _problem(mailbox: str, policies: Sequence[Sequence[Policy]], attempts: int) -> str | None:
    # A message that is lost from the mailbox becomes a suspect at once. A loss as a
    # suspect counts as an attempt.
    needed = {mailbox: TOO_FEW, suspects(mailbox): max(TOO_FEW, attempts)}
    if not attempts:
        needed[suspects(mailbox)] = MAX_ATTEMPTS
    for queue, least in needed.items():
        for kind in policies:
            policy = _effective(queue, kind)
            limit = None if policy is None else policy.definition.get(_LIMIT)
            if policy is not None and isinstance(limit, int) and 0 <= limit < least:
                return (
                    f"the policy {policy.name!a} gives the queue {queue} a"
                    f" {_LIMIT} of {limit}: the broker would drop or move messages"
                    f" that we still try. Raise it to {least} or more, or make its"
                    " pattern spare our queues"
                )
    return None


def _effective(queue: str, policies: Iterable[Policy]) -> Policy | None:
    """Return the matching policy with the highest priority."""
    matching = [policy for policy in policies if policy.is_for(queue)]
    return max(matching, key=lambda policy: policy.priority, default=None)


FEATURES: Final = Features(
    engine="rabbitmq",
    durability=Durability.POWER_SAFE,  # quorum queues sync before they confirm
    exact_delay=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
    keeps_letters=False,
    keeps_ledger=False,
)


class RabbitBroker:
    """
    The mailboxes that this process uses.

    AMQP cannot list queues, and cannot store our options: both are known to this process
    only.
    """

    def __init__(self, link: Link, features: Features, clock: Clock) -> None:
        self.features = features
        self.seal = Seal()
        self._link = link
        self._clock = clock
        self._queues = Queues(link)
        port = link.address.management
        self._management = None if port is None else Management(link.address, port)
        self._sender = Sender(link, self._queues, self.seal)
        self._boxes: dict[str, Mailbox] = {}
        self._options: dict[str, QueueOptions] = {}

    def source(self, mailbox: str) -> RabbitSource:
        """Return the source of a mailbox; a missing one is created on first use."""
        return RabbitSource(self._box(mailbox), self.features)

    def sink(self, mailbox: str) -> RabbitSink:
        """Return the sink of a mailbox; a missing one is created on first use."""
        return RabbitSink(self._box(mailbox))

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raises Conflict if it exists with other options."""
        check(options.name)
        validate(options, self._options)
        known = self._options.get(options.name)
        if known not in (None, options, QueueOptions(name=options.name)):
            raise Conflict(f"queue {options.name} exists with other options: update it instead")
        with translating():
            await self._queues.mailbox(options.name)
        self._set(options)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options, for this process."""
        check_update(options, self._options)
        self._set(options)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox; return the number of its messages."""
        with translating():
            if await self._queues.count(name) is None:
                raise NotFound(f"there is no queue {name!a}")
        for user in check_deletion(name, self._options, force=force):
            self._set(structs.replace(self._options[user], dead_queue=None))
        box = self._box(name)
        out = box.inbox.unsettled  # the broker counts undelivered messages only
        gone = await self._queues.delete(name)
        box.expire_after = None
        box.inbox.close()
        del self._options[name]
        return gone + out

    async def queues(self) -> Sequence[QueueInfo]:
        """List the mailboxes that this process uses, by name."""
        return [await self._info(name) for name in sorted(self._options)]

    async def ready(self, mailbox: str) -> int:
        """Return the number of ready messages that are not delivered."""
        with translating():
            return await self._queues.count(mailbox) or 0

    async def reconnect(self) -> None:
        """End both connections; their deliveries go to others."""
        self._link.reconnect()

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """
        Return why the broker would drop a message before we give up.

        It counts lost deliveries only. Arguments of a queue are always visible, policies
        only if the URL names the management API.
        """
        check(mailbox)
        with translating():
            await self._queues.mailbox(mailbox)
        problem = self._queues.in_the_way(mailbox)
        if problem is None and self._management is not None:
            problem = await self._management.in_the_way(mailbox, attempts=attempts)
        return problem

    async def overruled(self) -> Sequence[str]:
        """List problems with policies for mailboxes of any process."""
        if self._management is None:
            raise ConfigError(
                "AMQP does not show a delivery-limit that a policy sets: look at"
                " `rabbitmqctl list_policies`, or add ?management=15672 to the URL, the"
                " port of the management API"
            )
        return await self._management.all_in_the_way()

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """
        Turn claims of stuck workers of this process into suspects.

        The broker requeues what a dead process held. Nothing is doomed here: AMQP cannot
        look into a queue. Whoever receives an expired message, or a suspect out of
        attempts, buries it.
        """
        lost, found = 0, set()
        for name, box in list(self._boxes.items()):
            with translating():
                if box.idle:
                    await box.give_back()
                await box.forward()
                lost += await box.take_back()
                if box.inbox.channel and await self._queues.count(suspects(name)):
                    found.add(name)
        return Swept(lost, frozenset(found))

    async def close(self) -> None:
        """Release unclaimed deliveries."""
        for box in self._boxes.values():
            await box.give_back()

    async def _info(self, name: str) -> QueueInfo:
        box = self._box(name)
        with translating():
            await self._queues.mailbox(name)
            ready = await self._queues.count(name) or 0
            waiting = box.inbox.waiting
            delayed = [await self._queues.count(place) or 0 for place in self._queues.delayed(name)]
            suspected = 0
            if box.inbox.channel is not None:
                suspected = await self._queues.count(suspects(name)) or 0
        return QueueInfo(
            options=self._options[name],
            ready=ready + waiting,
            delayed=sum(delayed),
            claimed=len(box.inbox.claims),
            suspects=suspected,
        )

    def _set(self, options: QueueOptions) -> None:
        self._box(options.name).expire_after = options.expire_after
        self._options[options.name] = options

    def _box(self, name: str) -> Mailbox:
        if name not in self._boxes:
            check(name)
            self._boxes[name] = Mailbox(
                name,
                inbox=Inbox(name, self._link, self._queues, self.seal),
                queues=self._queues,
                sender=self._sender,
                clock=self._clock,
            )
        self._options.setdefault(name, QueueOptions(name=name))
        return self._boxes[name]


class RabbitEngine(MailboxEngine):
    """Mailboxes on one broker. It keeps neither letters nor ledger."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._mailboxes = RabbitBroker(link, FEATURES, clock)
        super().__init__(self._mailboxes, FEATURES)
        self._link = link

    async def close(self) -> None:
        """Release unclaimed deliveries, and disconnect."""
        with suppress(BackendError):  # unreachable: the broker requeues everything
            await self._mailboxes.close()
        await self._link.close()


async def connect(url: str, *, clock: Clock) -> RabbitEngine:
    """Open the engine of a URL, once the broker accepted our login."""
    link = Link(read_url(url))
    await link.start()
    return RabbitEngine(link, clock)
