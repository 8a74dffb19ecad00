"""dlq queues and dlq send: list, create, update and delete mailboxes; send a message."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from deadletter.core.errors import ConfigError
from deadletter.core.message import Message, as_seconds, checked, sendable_headers
from deadletter.ports import QueueOptions

from .desk import AtDesk
from .options import Count, Flag, OptionalText, Reason, Seconds, Several, Yes, given_body, header_of
from .ui import (
    NARROW,
    Name,
    ago,
    ask_to_confirm,
    cell,
    firm_column,
    many,
    name_column,
    number,
    number_column,
    table,
)

app = App(name="queues", help="List, create, update and delete mailboxes.", help_format="markdown")
app.command("deadletter.queue_server.queue_commands:app", name="lent", help="Queues to lease from.")


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the mailboxes and what is in them."""
    async with desk.office() as office:
        found = await office.mailboxes.list()
    if desk.as_json:
        for queue in found:
            desk.document(queue)
        return
    if not found:
        desk.tell("There are no mailboxes yet; `dlq send` creates one.")
        return
    shown = table()
    is_narrow = desk.out.width < NARROW
    name_column(shown, "mailbox")
    for name in ("ready", "delayed", "claimed", "suspects"):
        number_column(shown, name)
    if not is_narrow:
        firm_column(shown, "oldest")
    name_column(shown, "dead queue")
    now = desk.clock.now()
    for queue in found:
        oldest = cell(ago(queue.oldest_at, now) if queue.oldest_at else "")
        shown.add_row(
            Name(queue.options.name, "cyan"),
            number(queue.ready),
            number(queue.delayed),
            number(queue.claimed),
            number(queue.suspects, "red"),
            *([] if is_narrow else [oldest]),
            Name(queue.options.dead_queue or ""),
        )
    desk.show(shown)


@app.command
async def create(
    name: str,
    /,
    *,
    dead_queue: str | None = None,
    max_attempts: Count = None,
    expire_after: Seconds = None,
    reference: OptionalText = "",
    desk: AtDesk,
) -> None:
    """
    Create a mailbox. Creating it again with the same options does nothing.

    Args:
        name: The name of the mailbox.
        dead_queue: An existing mailbox that receives copies of its dead letters.
        max_attempts: Attempts before a message is dead-lettered; 0 means the policy
            of the worker decides.
        expire_after: Seconds after which messages without an expiry expire.
        reference: A note for people.
    """
    options = QueueOptions(
        name=name,
        dead_queue=dead_queue,
        max_attempts=max_attempts or 0,
        expire_after=expire_after,
        reference=reference,
    )
    async with desk.office(make=True) as office:
        await office.mailboxes.create(options, desk.by())
    if desk.as_json:
        desk.document(options)
    else:
        desk.tell(f"Mailbox {name} exists.")


@app.command
async def update(
    name: str,
    /,
    *,
    dead_queue: str | None = None,
    no_dead_queue: Flag = False,
    max_attempts: Count = None,
    expire_after: Seconds = None,
    never_expire: Flag = False,
    reference: str | None = None,
    reason: Reason = "",
    desk: AtDesk,
) -> None:
    """
    Change options of a mailbox; the others stay.

    Args:
        name: The mailbox.
        dead_queue: An existing mailbox that receives copies of its dead letters.
        no_dead_queue: Stop copying its dead letters.
        max_attempts: Attempts before a message is dead-lettered; 0: the worker decides.
        expire_after: Seconds after which messages without an expiry expire.
        never_expire: Messages without an expiry never expire.
        reference: A note for people.
        reason: Why; recorded in the audit.
    """
    if never_expire and expire_after is not None:
        raise ConfigError("--never-expire cannot be combined with --expire-after: give one")
    if no_dead_queue and dead_queue is not None:
        raise ConfigError("--no-dead-queue cannot be combined with --dead-queue: give one")
    changes: dict[str, Any] = {}
    if dead_queue is not None or no_dead_queue:
        changes["dead_queue"] = dead_queue
    if max_attempts is not None:
        changes["max_attempts"] = max_attempts
    if expire_after is not None or never_expire:
        changes["expire_after"] = expire_after
    if reference is not None:
        changes["reference"] = reference
    if not changes:
        raise ConfigError(
            "nothing to change: give --dead-queue, --max-attempts, --expire-after or --reference"
        )
    by = desk.by(reason)
    async with desk.office() as office:
        options = await office.mailboxes.update(name, changes, by)
    if desk.as_json:
        desk.document(options)
    else:
        desk.tell(f"Mailbox {name} changed.")


@app.command
async def delete(
    name: str, /, *, force: Flag = False, reason: Reason = "", yes: Yes = False, desk: AtDesk
) -> None:
    """
    Delete a mailbox and the messages in it. Letters that came from it stay.

    Args:
        name: The mailbox.
        force: Delete it even if it is the dead queue of another mailbox.
        reason: Why; recorded in the audit.
        yes: Do not ask for confirmation.
    """
    async with desk.office() as office:
        queue = await office.mailboxes.get(name)
        inside = queue.ready + queue.delayed + queue.claimed + queue.suspects
        what = f"delete mailbox {name} and {many(inside, 'message')} in it"
        ask_to_confirm(desk, what, yes=yes, count=inside)
        gone = await office.mailboxes.delete(name, desk.by(reason), force=force)
    if desk.as_json:
        desk.document({"mailbox": name, "purged": gone})
    else:
        desk.tell(f"Mailbox {name} deleted, with {many(gone, 'message')}.")


async def send(
    mailbox: str,
    body: str | None = None,
    /,
    *,
    file: Annotated[
        Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)
    ] = None,
    header: Annotated[Several, Parameter(name=["--header", "-H"])] = (),
    content_type: str | None = None,
    key: str | None = None,
    message_id: Annotated[str | None, Parameter(name="--id")] = None,
    idempotency_key: str | None = None,
    reply_to: str | None = None,
    delay: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    expires_in: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    desk: AtDesk,
) -> None:
    """
    Send a message; print its id when the mailbox has stored it.

    Args:
        mailbox: The mailbox; it is created if it does not exist.
        body: The body as text; or use --file.
        file: A file with the body; - is standard input.
        header: A header as name=value; can be repeated.
        content_type: The content type (default: application/json if the body looks like JSON).
        key: The ordering key.
        message_id: The id of the message (default: a new one).
        idempotency_key: Messages with the same key are handled once.
        reply_to: The mailbox that receives the reply.
        delay: Seconds until the message can be received.
        expires_in: Seconds until the message expires (default: never).
    """
    if message_id == "":
        raise ConfigError("--id must not be empty: give an id, or omit the option")
    data = given_body(body, file)
    now = desk.clock.now()
    message = Message(
        id=message_id or desk.dice.new_id(),
        body=data,
        sent_at=now,
        headers=sendable_headers(header_of(text) for text in header),
        content_type=content_type or _guess_content_type(data),
        key=key,
        expires_at=_expiry(now, expires_in),
        reply_to=reply_to,
        idempotency_key=idempotency_key,
    )
    async with desk.engine(make=True) as engine:
        sink = engine.broker.sink(mailbox)
        await sink.send([checked(message)], delay=as_seconds("delay", delay))
    if desk.as_json:
        desk.document({"id": message.id, "mailbox": mailbox})
    else:
        desk.tell(message.id)


def _expiry(now: datetime, within: float | None) -> datetime | None:
    if within is None:
        return None
    return now + timedelta(seconds=as_seconds("expires_in", within))


def _guess_content_type(body: bytes) -> str | None:
    return "application/json" if body.lstrip()[:1] in (b"{", b"[") else None
