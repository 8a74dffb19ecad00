"""Acts on mailboxes: create, change, delete, and end an outage."""

from typing import Any

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.letter import By
from deadletter.core.topology import no_dead_queue
from deadletter.office.mailboxes import Released, not_held
from deadletter.ports import QueueOptions
from deadletter.server.auth.guards import check_role, check_seen, check_uses
from deadletter.server.context import ServerContext


async def create_mailbox(
    context: ServerContext, who: Identity, options: QueueOptions, *, reason: str = ""
) -> QueueOptions:
    """Create a mailbox. Raises Conflict if it exists with other options."""
    check_role(who, Role.ADMIN)
    check_seen(who, options.name, no_mailbox)
    await _check_uses(context, who, options.name, options.dead_queue)
    await context.office.mailboxes.create(options, By(who.name, reason))
    return options


async def change_mailbox(
    context: ServerContext, who: Identity, name: str, changes: dict[str, Any], *, reason: str = ""
) -> QueueOptions:
    """Change some options of a mailbox; the others stay."""
    check_role(who, Role.ADMIN)
    if not changes:
        raise ConfigError("the request changes nothing: give at least one option")
    check_seen(who, name, no_mailbox)
    if changes.get("dead_queue") or changes.get("expire_after"):
        await _check_uses(context, who, name, changes.get("dead_queue"))
    return await context.office.mailboxes.update(name, changes, By(who.name, reason))


async def delete_mailbox(
    context: ServerContext, who: Identity, name: str, *, force: bool = False, reason: str = ""
) -> int:
    """Delete a mailbox; return the number of messages deleted with it. Its letters stay."""
    check_role(who, Role.ADMIN)
    check_seen(who, name, no_mailbox)
    await _check_uses(context, who, name)
    return await context.office.mailboxes.delete(name, By(who.name, reason), force=force)


async def release_mailbox(
    context: ServerContext, who: Identity, name: str, *, reason: str = ""
) -> Released:
    """End an outage by hand: workers receive messages again, and policies apply."""
    check_role(who, Role.OPERATOR)
    check_seen(who, name, not_held)
    return await context.office.mailboxes.release(name, By(who.name, reason))


def no_mailbox(name: str) -> NotFound:
    """Return the error for a mailbox that does not exist, or that the caller may not see."""
    return NotFound(f"there is no mailbox {name!r}; `dlq queues list` shows them")


async def _check_uses(
    context: ServerContext, who: Identity, mailbox: str, dead_queue: str | None = None
) -> None:
    async def list_all() -> list[QueueOptions]:
        return [one.options for one in await context.office.mailboxes.list()]

    if dead_queue is not None:
        check_seen(who, dead_queue, no_dead_queue)
    await check_uses(who, mailbox, list_all, leads_to=dead_queue)
