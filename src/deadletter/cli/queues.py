"""dlq queues: mailboxes, and which of them is whose dead-letter mailbox."""

from typing import Any

from cyclopts import App

from deadletter.core.errors import ConfigError
from deadletter.ports import QueueOptions

from .asking import agreed
from .desk import AtDesk
from .options import Count, Flag, Reason, Seconds, Text, Yes
from .tables import (
    NARROW,
    Name,
    cell,
    firm_column,
    name_column,
    number,
    number_column,
    table,
)
from .times import ago, many

app = App(
    name="queues",
    help="Mailboxes: list, create, update, delete them.",
    help_format="markdown",
)
app.command(f"{__package__}.lent:app", name="lent", help="Queues to lease from.")


@app.default
@app.command(name="list")
async def list_(*, desk: AtDesk) -> None:
    """List the mailboxes and what is in them."""
    async with desk.office() as office:
        found = await office.queues()
    if desk.as_json:
        for queue in found:
            desk.document(queue)
        return
    if not found:
        desk.tell("There are no mailboxes yet; `dlq send` makes one.")
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
    reference: Text = "",
    desk: AtDesk,
) -> None:
    """
    Make a mailbox. Making the same again is fine.

    Args:
        name: What it is called.
        dead_queue: The mailbox its dead letters are copied to. It must exist.
        max_attempts: After so many a message is given up, whoever works it; 0
            leaves that to the worker's policy.
        expire_after: Seconds after which messages that do not say are too late.
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
        await office.create_queue(options, desk.by())
    if desk.as_json:
        desk.document(options)
    else:
        desk.tell(f"Mailbox {name} is there.")


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
    Change a mailbox; what is not given stays as it is.

    Args:
        name: Which.
        dead_queue: The mailbox its dead letters are copied to. It must exist.
        no_dead_queue: Copy its dead letters nowhere.
        max_attempts: After so many a message is given up; 0 leaves it to the worker.
        expire_after: Seconds after which messages that do not say are too late.
        never_expire: Messages that do not say are never too late.
        reference: A note for people.
        reason: Why; goes into the audit.
    """
    if never_expire and expire_after is not None:
        raise ConfigError("--never-expire and --expire-after contradict: give one")
    if no_dead_queue and dead_queue is not None:
        raise ConfigError("--no-dead-queue and --dead-queue contradict: give one")
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
            "say what to change: --dead-queue, --max-attempts, --expire-after or"
            " --reference"
        )
    by = desk.by(reason)
    async with desk.office() as office:
        options = await office.update_queue(name, changes, by)
    if desk.as_json:
        desk.document(options)
    else:
        desk.tell(f"Mailbox {name} is changed.")


@app.command
async def delete(
    name: str,
    /,
    *,
    force: Flag = False,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> None:
    """
    Delete a mailbox and the messages in it. Letters that came from it stay.

    Args:
        name: Which.
        force: Also if it is another mailbox's dead queue.
        reason: Why; goes into the audit.
        yes: Do not ask.
    """
    async with desk.office() as office:
        queue = await office.queue(name)
        inside = queue.ready + queue.delayed + queue.claimed + queue.suspects
        what = f"delete mailbox {name} and {many(inside, 'message')} in it"
        agreed(desk, what, yes=yes, count=inside)
        gone = await office.delete_queue(name, desk.by(reason), force=force)
    if desk.as_json:
        desk.document({"mailbox": name, "purged": gone})
    else:
        desk.tell(f"Mailbox {name} is gone, and {many(gone, 'message')} with it.")
