"""Which queues are any of a caller's business, if they may see only some."""

from litestar.exceptions import PermissionDeniedException

from deadletter.core.access import Pass
from deadletter.core.lease_queues import no_queue

from .said import Said


def check_seen(who: Pass, asked: Said) -> None:
    """
    Refuse what concerns queues that somebody may not see.

    Such a queue is answered as one that is not there; a call about all queues is
    not for those who see some.
    """
    named = getattr(asked, "queue_name", None)
    if named is None:
        raise PermissionDeniedException("this token sees only some queues; name one")
    for queue in (named, getattr(asked, "dead_queue", None) or ""):
        if queue and not who.sees(queue):
            raise no_queue(queue)
