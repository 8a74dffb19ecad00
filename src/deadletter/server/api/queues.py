"""Routes of mailboxes: list, create, change, delete; of outages; and of statistics."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.letter import By
from deadletter.core.topology import MAX_ATTEMPTS, MAX_NAME, MAX_REFERENCE, no_dead_queue
from deadletter.office.mailboxes import Outage, Released, not_held
from deadletter.office.stats import Stats
from deadletter.ports import QueueInfo, QueueOptions
from deadletter.server.auth.guards import check_seen, check_uses, needs
from deadletter.server.context import Here, ServerContext, Who

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
    check_seen(who, data.name, _missing)
    await _check_uses(context, who, data.name, data.dead_queue)
    options = QueueOptions(
        name=data.name,
        dead_queue=data.dead_queue,
        max_attempts=data.max_attempts,
        expire_after=data.expire_after,
        reference=data.reference,
    )
    by = By(who.name, data.reason)
    await context.office.mailboxes.create(options, by)
    return options


@get("/queues/{name:path}", guards=READ)
async def get_queue(context: Here, who: Who, name: Name) -> QueueInfo:
    """Return one mailbox and its numbers of messages."""
    return await context.office.mailboxes.get(_named(who, name))


@patch("/queues/{name:path}", guards=ADMIN)
async def change_queue(
    context: Here, who: Who, name: Name, data: JSONBody[MailboxChange]
) -> QueueOptions:
    """Change a mailbox's options."""
    changes = data.given()
    if not changes:
        raise ConfigError("the request changes nothing: give at least one option")
    mailbox = _named(who, name)
    if changes.get("dead_queue") or changes.get("expire_after"):
        await _check_uses(context, who, mailbox, changes.get("dead_queue"))
    return await context.office.mailboxes.update(mailbox, changes, By(who.name, data.reason))


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
    mailbox = _named(who, name)
    await _check_uses(context, who, mailbox)
    gone = await context.office.mailboxes.delete(mailbox, By(who.name, reason), force=force)
    return Deleted(mailbox=mailbox, purged=gone)


def _named(who: Identity, name: str) -> str:
    mailbox = name.removeprefix("/")
    check_seen(who, mailbox, _missing)
    return mailbox


def _missing(mailbox: str) -> NotFound:
    return NotFound(f"there is no mailbox {mailbox!r}; `dlq queues list` shows them")


async def _check_uses(
    context: ServerContext, who: Identity, mailbox: str, dead_queue: str | None = None
) -> None:
    async def list_all() -> list[QueueOptions]:
        return [one.options for one in await context.office.mailboxes.list()]

    if dead_queue is not None:
        check_seen(who, dead_queue, no_dead_queue)
    await check_uses(who, mailbox, list_all, leads_to=dead_queue)


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
    check_seen(who, data.mailbox, not_held)
    by = By(who.name, data.reason)
    return await context.office.mailboxes.release(data.mailbox, by)


@get("/stats", guards=[needs(Role.READER)])
async def get_stats(context: Here, who: Who) -> Stats:
    """Return the numbers of messages and letters, and recent arrivals."""
    return await context.office.stats(sources=who.sources)


routes: Final[list[Any]] = [
    *(list_queues, create_queue, get_queue, change_queue, delete_queue),
    *(get_outages, release_outage, get_stats),
]
