"""Acts on queues of the queue server: those of its protocol, with the same rules."""

from typing import Final

from deadletter.core.access import Identity
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By
from deadletter.queue_server.routes import CALLS, check_queues
from deadletter.queue_server.service import QueueService
from deadletter.queue_server.wire import WireMessage
from deadletter.server.auth.guards import check_role
from deadletter.server.context import ServerContext

_OFF: Final = "this engine cannot keep items: memory, SQLite and PostgreSQL can"


async def act_on_lent(
    context: ServerContext,
    service: QueueService | None,
    who: Identity,
    name: str,
    request: WireMessage,
    *,
    reason: str = "",
) -> str:
    """
    Do what a call of the protocol does, such as `queue.clear`; return what was done.

    The roles and limits are those of the call, and changes are recorded in the audit under
    its name.
    """
    if service is None:
        raise ConfigError(_OFF)
    call = CALLS[name]
    check_role(who, call.role)
    await check_queues(who, request, service.store)
    if call.change is None:
        assert call.answer is not None
        await call.answer(service, request)
        return ""
    done = await call.change(service, request)
    await context.store.record(name, done.queue, By(who.name, reason), done.detail)
    return done.detail
