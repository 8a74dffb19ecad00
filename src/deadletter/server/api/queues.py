"""Routes of mailboxes: list, create, change, delete; of outages; and of statistics."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from deadletter.core.access import Role
from deadletter.core.topology import MAX_ATTEMPTS, MAX_NAME, MAX_REFERENCE
from deadletter.office.mailboxes import Outage, Released
from deadletter.office.stats import Stats
from deadletter.ports import QueueInfo, QueueOptions
from deadletter.server.acting.mailbox_acts import (
    change_mailbox,
    create_mailbox,
    delete_mailbox,
    no_mailbox,
    release_mailbox,
)
from deadletter.server.auth.guards import check_seen, needs
from deadletter.server.context import Here, Who

from .letters import Reason

READ: Final = [needs(Role.READER)]
ADMIN: Final = [needs(Role.ADMIN)]
Name: TypeAlias = Annotated[
    str, PathParameter(max_length=MAX_NAME + 1, description="The mailbox's name.")
]
MailboxName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Attempts: TypeAlias = Annotated[
    int, Meta(ge=0, le=MAX_ATTEMPTS, description="0 means the worker decides.")
]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]
ShortText: TypeAlias = Annotated[str, Meta(max_length=MAX_REFERENCE)]


class NewMailbox(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mailbox to create."""

    name: MailboxName
    dead_queue: MailboxName | None = None
    max_attempts: Attempts = 0
    expire_after: Seconds | None = None
    reference: ShortText = ""
    reason: Reason = ""


class MailboxChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a mailbox to change; the others stay."""

    dead_queue: MailboxName | UnsetType | None = UNSET
    max_attempts: Attempts | UnsetType = UNSET
    expire_after: Seconds | UnsetType | None = UNSET
    reference: ShortText | UnsetType = UNSET
    reason: Reason = ""

    def given(self) -> dict[str, Any]:
        """Return the fields to change."""
        values = structs.asdict(self)
        del values["reason"]
        return {name: value for name, value in values.items() if value is not UNSET}


class Deleted(Struct, frozen=True, kw_only=True):
    """A deleted mailbox, and the number of messages deleted with it."""

    mailbox: str
    purged: int


@get("/queues", guards=READ)
async def list_queues(context: Here, who: Who) -> list[QueueInfo]:
    """List all mailboxes with their numbers of messages, by name."""
    found = await context.office.mailboxes.list()
    return [queue for queue in found if who.sees(queue.options.name)]


@post("/queues", guards=ADMIN)
async def create_queue(context: Here, who: Who, data: JSONBody[NewMailbox]) -> QueueOptions:
    """Create a mailbox. If it exists with other options, it is a conflict."""
    options = QueueOptions(
        name=data.name,
        dead_queue=data.dead_queue,
        max_attempts=data.max_attempts,
        expire_after=data.expire_after,
        reference=data.reference,
    )
    return await create_mailbox(context, who, options, reason=data.reason)


@get("/queues/{name:path}", guards=READ)
async def get_queue(context: Here, who: Who, name: Name) -> QueueInfo:
    """Return one mailbox and its numbers of messages."""
    mailbox = name.removeprefix("/")
    check_seen(who, mailbox, no_mailbox)
    return await context.office.mailboxes.get(mailbox)


@patch("/queues/{name:path}", guards=ADMIN)
async def change_queue(
    context: Here, who: Who, name: Name, data: JSONBody[MailboxChange]
) -> QueueOptions:
    """Change a mailbox's options."""
    mailbox = name.removeprefix("/")
    return await change_mailbox(context, who, mailbox, data.given(), reason=data.reason)


@delete("/queues/{name:path}", guards=ADMIN, status_code=200)
async def delete_queue(
    context: Here,
    who: Who,
    name: Name,
    force: FromQuery[bool] = False,
    reason: Annotated[str, QueryParameter(max_length=4_000)] = "",
) -> Deleted:
    """
    Delete a mailbox and the messages in it. Letters that came from it stay.

    The dead queue of another mailbox is deleted only with `force`.
    """
    mailbox = name.removeprefix("/")
    gone = await delete_mailbox(context, who, mailbox, force=force, reason=reason)
    return Deleted(mailbox=mailbox, purged=gone)


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mailbox whose workers should continue."""

    mailbox: MailboxName
    reason: Reason = ""


@get("/outages", guards=[needs(Role.READER)])
async def get_outages(
    context: Here,
    who: Who,
    mailbox: Annotated[str | None, QueryParameter(max_length=MAX_NAME)] = None,
    open: FromQuery[bool] = False,
    limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 50,
) -> Sequence[Outage]:
    """
    List the outages in which the brake stopped mailboxes, latest first.

    `outage` means transient failures, `systemic` that nearly all messages fail for one
    cause. Overlapping windows of several workers are one outage.
    """
    return await context.office.mailboxes.outages(
        mailbox=mailbox, sources=who.sources, only_open=open, limit=limit
    )


@post("/outages/release", guards=[needs(Role.OPERATOR)], status_code=200)
async def release_outage(context: Here, who: Who, data: JSONBody[Release]) -> Released:
    """
    End an outage by hand: workers receive messages again, and policies apply.

    Workers continue within seconds, and do not stop for the same cause for a day.
    """
    return await release_mailbox(context, who, data.mailbox, reason=data.reason)


@get("/stats", guards=[needs(Role.READER)])
async def get_stats(context: Here, who: Who) -> Stats:
    """Return the numbers of messages and letters, and recent arrivals."""
    return await context.office.stats(sources=who.sources)


routes: Final[list[Any]] = [
    *(list_queues, create_queue, get_queue, change_queue, delete_queue),
    *(get_outages, release_outage, get_stats),
]
