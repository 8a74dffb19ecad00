"""Which queues are any of a caller's business, if they may see only some."""

from collections.abc import Sequence

from litestar.exceptions import PermissionDeniedException
from msgspec import UNSET

from deadletter.core.access import Pass
from deadletter.core.items import LeaseQueue
from deadletter.core.lease_queues import no_queue
from deadletter.ports import ItemStore
from deadletter.web.auth.mailboxes import check_seen, check_uses

from .limits import LISTED
from .said import DeleteQueue, QueueInfo, Said


async def check_queues(who: Pass, asked: Said, store: ItemStore) -> None:
    """
    Refuse what concerns queues that somebody may not see.

    Such a queue is answered as one that is not there; a call about all queues is
    not for those who see some.
    """
    if not who.sources:
        return
    named = getattr(asked, "queue_name", None)
    if named is None:
        raise PermissionDeniedException("this token sees only some queues; name one")
    if named:
        check_seen(who, named, no_queue)

    async def there() -> Sequence[LeaseQueue]:
        return await _all(store)

    if isinstance(asked, DeleteQueue):
        await check_uses(who, named, there)
    elif isinstance(asked, QueueInfo) and asked.dead_queue is not UNSET:
        if asked.dead_queue:
            check_seen(who, asked.dead_queue, no_queue)
        await check_uses(who, named, there, leads_to=asked.dead_queue or None)


async def _all(store: ItemStore) -> list[LeaseQueue]:
    found = list(await store.queues(limit=LISTED))
    while len(found) % LISTED == 0 and found:
        more = await store.queues(pivot=found[-1].name, limit=LISTED + 1)
        if len(more) <= 1:
            break
        found += more[1:]
    return found
