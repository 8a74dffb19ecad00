"""Every call of the wire: what is said, who may say it, and how long it may be."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from msgspec import Struct

from deadletter.core.access import Role
from deadletter.lending import Lending

from . import said, storage, upkeep, work
from .acts import Act
from .limits import KILO, MEGA

S = TypeVar("S", bound=said.Said)


class Call(Struct, frozen=True):
    """One call: answered, or an act for the audit; or else the one that waits."""

    asked: type[said.Said]
    role: Role
    answer: Callable[[Lending, Any], Awaitable[said.Said]] | None = None
    body: int = 256 * KILO  # bytes it may have
    act: Callable[[Lending, Any], Awaitable[Act]] | None = None


def _call(
    asked: type[S],
    role: Role,
    answer: Callable[[Lending, S], Awaitable[said.Said]],
    body: int = 256 * KILO,
) -> Call:
    return Call(asked, role, answer, body)


def _act(
    asked: type[S],
    act: Callable[[Lending, S], Awaitable[Act]],
    body: int = 256 * KILO,
) -> Call:
    return Call(asked, Role.ADMIN, body=body, act=act)


LEASE: Final = Call(said.Lease, Role.OPERATOR, body=512)

CALLS: Final[Mapping[str, Call]] = MappingProxyType(
    {
        "queue.produce": _call(said.Produce, Role.OPERATOR, work.produce, 5 * MEGA),
        "queue.lease": LEASE,
        "queue.complete": _call(said.Complete, Role.OPERATOR, work.complete),
        "queue.retry": _call(said.Retry, Role.OPERATOR, work.retry),
        "queue.stats": _call(said.Named, Role.READER, upkeep.stats),
        "queue.clear": _act(said.Clear, upkeep.clear),
        "queue.reload": _act(said.Named, upkeep.reload),
        "queues.create": _act(said.QueueInfo, upkeep.create_queue, 512 * KILO),
        "queues.update": _act(said.QueueInfo, upkeep.update_queue),
        "queues.delete": _act(said.DeleteQueue, upkeep.delete_queue),
        "queues.list": _call(said.ListQueues, Role.READER, upkeep.list_queues),
        "queues.info": _call(said.Named, Role.READER, upkeep.queue_info),
        "storage/items.list": _call(said.ListItems, Role.ADMIN, storage.list_items),
        "storage/items.import": _act(said.ImportItems, storage.import_items, 64 * MEGA),
        "storage/items.delete": _act(said.DeleteItems, storage.delete_items),
        "storage/scheduled.list": _call(
            said.ListItems, Role.ADMIN, storage.list_scheduled
        ),
    }
)
