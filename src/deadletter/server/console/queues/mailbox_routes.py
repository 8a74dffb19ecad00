"""Routes of mailboxes: the list, one mailbox, and what administrators do with them."""

from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get, post
from litestar.params import PathParameter, QueryParameter
from msgspec import Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError
from deadletter.core.text import many
from deadletter.core.topology import MAX_NAME
from deadletter.ports import QueueOptions
from deadletter.server.acting import mailbox_acts
from deadletter.server.auth.guards import check_role, needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    Console,
    bare_page,
    done,
    is_partial,
    path_to,
    render_page,
    render_part,
)
from deadletter.server.console.undo_keys import Opposite
from deadletter.server.context import Here, ServerContext, Who

from .broker_look import AT_ONCE, PATIENCE, looks_of
from .mailbox_page import load_mailbox
from .mailbox_rows import load_table

Name = Annotated[str, QueryParameter(max_length=MAX_NAME)]


@get("/queues", guards=[needs(Role.READER)], include_in_schema=False)
async def show_mailboxes(
    request: Request[Any, Any, Any],
    who: Who,
    part: Annotated[Literal["rows"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show all mailboxes, or the part that asks the broker."""
    page = await load_table(request, who, PATIENCE if part else AT_ONCE)
    if part is not None:
        return render_part(request, "queues/mailbox_rows.html", page)
    about = About(title="Mailboxes", screen="queues", command="dlq queues", api="/queues")
    return await render_page(request, "queues/mailboxes.html", page, about)


@get("/queues/{name:path}", guards=[needs(Role.READER)], include_in_schema=False)
async def show_mailbox(
    request: Request[Any, Any, Any],
    who: Who,
    name: Annotated[str, PathParameter(max_length=MAX_NAME + 1)],
    part: Annotated[
        Literal["head", "workers", "deaths", "groups", "acts"] | None, QueryParameter()
    ] = None,
) -> Response[bytes]:
    """Show one mailbox, or one part of it."""
    mailbox = name.removeprefix("/")
    page = await load_mailbox(request, who, mailbox, PATIENCE if part else AT_ONCE)
    if part is not None:
        return render_part(request, f"queues/mailbox_{part}.html", page)
    about = About(
        title=mailbox,
        screen="queues",
        command=f"dlq list {_argument('source:' + mailbox)}",
        api=path_to("queues", mailbox),
        query=f"is:open source:{mailbox}" if mailbox.isidentifier() else "",
    )
    return await render_page(request, "queues/mailbox.html", page, about)


class MailboxDialog(Struct, frozen=True, kw_only=True):
    """The dialog of an act on one mailbox, or of a new one."""

    act: str
    name: str = ""
    options: QueueOptions | None = None
    inside: int = 0  # messages that are deleted with it
    used_by: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # that may be its dead queue
    back: str = "/queues"
    held: int = 0


@get("/queue/dialog", guards=[needs(Role.OPERATOR)], include_in_schema=False)
async def show_mailbox_dialog(
    request: Request[Any, Any, Any],
    who: Who,
    act: Annotated[Literal["create", "change", "delete", "release"], QueryParameter()],
    name: Name = "",
) -> Response[bytes]:
    """Show the form of an act, with the numbers of now."""
    page = await _dialog(request, who, act, name)
    if is_partial(request):
        return render_part(request, "queues/mailbox_dialog.html", page)
    about = About(title=_TITLES[act], screen="queues")
    return bare_page(request, "queues/mailbox_dialog_page.html", page, about)


_TITLES: Final = {
    "create": "Create a mailbox",
    "change": "Change a mailbox",
    "delete": "Delete a mailbox",
    "release": "End an outage",
}


async def _dialog(
    request: Request[Any, Any, Any], who: Identity, act: str, name: str
) -> MailboxDialog:
    if act == "release":
        if not who.sees(name):
            raise mailbox_acts.no_mailbox(name)
        return MailboxDialog(act=act, name=name, back=path_to("queues", name))
    check_role(who, Role.ADMIN)
    queues = await looks_of(request).look(PATIENCE, fresh=True)
    seen = {one.options.name: one for one in queues if who.sees(one.options.name)}
    names = tuple(one for one in sorted(seen) if one != name and not seen[one].options.dead_queue)
    if act == "create":
        return MailboxDialog(act=act, others=names)
    queue = seen.get(name)
    if queue is None:
        raise mailbox_acts.no_mailbox(name)
    return MailboxDialog(
        act=act,
        name=name,
        options=queue.options,
        inside=queue.ready + queue.delayed + queue.claimed + queue.suspects,
        used_by=tuple(key for key, one in seen.items() if one.options.dead_queue == name),
        others=names,
        back=path_to("queues", name),
    )


class MailboxForm(Struct, frozen=True, kw_only=True):
    """The fields of a mailbox, as they are written in a form."""

    name: str
    dead_queue: str = ""
    max_attempts: int = 0
    expire_after: float = 0.0
    reference: str = ""
    reason: str = ""

    def options(self) -> QueueOptions:
        """Return what they mean."""
        if self.max_attempts < 0 or self.expire_after < 0:
            raise ConfigError("attempts and seconds must be 0 or more; 0 means no limit")
        return QueueOptions(
            name=self.name,
            dead_queue=self.dead_queue or None,
            max_attempts=self.max_attempts,
            expire_after=self.expire_after or None,
            reference=self.reference,
        )


@post(
    "/queue/create",
    guards=[needs(Role.ADMIN)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def create_mailbox(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Create a mailbox."""
    form = await read_form(request, MailboxForm)
    made = await mailbox_acts.create_mailbox(context, who, form.options(), reason=form.reason)
    looks_of(request).forget()
    path = path_to("queues", made.name)
    notice = Notice(text=f"Mailbox {made.name} exists.", link=path, link_text="Look at it")
    return done(request, notice, to=path)


@post(
    "/queue/change",
    guards=[needs(Role.ADMIN)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def change_mailbox(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Change the options of a mailbox; the others stay."""
    form = await read_form(request, MailboxForm)
    if not who.sees(form.name):
        raise mailbox_acts.no_mailbox(form.name)
    old = (await context.office.mailboxes.get(form.name)).options
    changes = _differing(old, form.options())
    if not changes:
        notice = Notice(text=f"Nothing about {form.name} is different: nothing was changed.")
        return done(request, notice, to=path_to("queues", form.name))
    await mailbox_acts.change_mailbox(context, who, form.name, changes, reason=form.reason)
    looks_of(request).forget()
    console: Console = request.app.state.console
    undo = console.undoing.keep(who, _restoring(old, changes))
    names = " and ".join(one.replace("_", " ") for one in changes)
    notice = Notice(text=f"The {names} of {form.name} changed.", undo=undo)
    return done(request, notice, to=path_to("queues", form.name))


def _differing(old: QueueOptions, new: QueueOptions) -> dict[str, Any]:
    before = structs.asdict(old)
    return {key: value for key, value in structs.asdict(new).items() if value != before[key]}


def _restoring(old: QueueOptions, changes: dict[str, Any]) -> Opposite:
    before = {name: value for name, value in structs.asdict(old).items() if name in changes}

    async def put_back(context: ServerContext, who: Identity) -> Notice:
        await mailbox_acts.change_mailbox(context, who, old.name, before, reason="undone")
        return Notice(text=f"{old.name} is as it was before.")

    return put_back


class DeletionForm(Struct, frozen=True, kw_only=True):
    """A mailbox to delete; `typed` repeats its name."""

    name: str
    typed: str = ""
    force: bool = False
    reason: str = ""


@post(
    "/queue/delete",
    guards=[needs(Role.ADMIN)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def delete_mailbox(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Delete a mailbox whose name was typed."""
    form = await read_form(request, DeletionForm)
    if form.typed != form.name:
        raise ConfigError(f"type the name {form.name!r} to delete it: nothing was done")
    gone = await mailbox_acts.delete_mailbox(
        context, who, form.name, force=form.force, reason=form.reason
    )
    looks_of(request).forget()
    text = f"Mailbox {form.name} is deleted, with {many(gone, 'message')}. Its letters stay."
    return done(request, Notice(text=text), to="/queues")


class ReleaseForm(Struct, frozen=True, kw_only=True):
    """A mailbox whose workers should go on."""

    name: str
    reason: str = ""


@post(
    "/queue/release",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def release_mailbox(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """End an outage by hand."""
    form = await read_form(request, ReleaseForm)
    found = await mailbox_acts.release_mailbox(context, who, form.name, reason=form.reason)
    workers = many(found.windows, "worker")
    text = f"Released {workers} of {form.name}: within seconds they receive messages again."
    return done(request, Notice(text=text), to=path_to("queues", form.name))


def _argument(text: str) -> str:
    """Return a text as one argument of a command."""
    return text if all(one.isalnum() or one in "-_./:" for one in text) else f"{text!r}"


routes: Final[list[Any]] = [
    *(show_mailboxes, show_mailbox, show_mailbox_dialog),
    *(create_mailbox, change_mailbox, delete_mailbox, release_mailbox),
]
