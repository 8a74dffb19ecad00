"""
Limits of queues that operators set by policies, read from the management API.

AMQP shows the arguments of a queue, not the policies for it. Policies are read rather
than the effective limits of queues, which are some seconds late.
"""

import asyncio
import http.client
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct, field

from deadletter.brokers.amqp.address import Address
from deadletter.brokers.amqp.connection import tls_context
from deadletter.core.errors import ConfigError, Unavailable
from deadletter.core.topology import MAX_ATTEMPTS

from .queues import TOO_FEW, suspects

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
