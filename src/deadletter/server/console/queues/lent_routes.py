"""Routes of lent queues: the queue server's queues, their items, and acts on both."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import Request, Response, get, post
from litestar.params import PathParameter, QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.text import many
from deadletter.core.topology import MAX_NAME
from deadletter.queue_server import wire
from deadletter.queue_server.model import MAX_PARTITIONS, LeaseQueue, queue_not_found
from deadletter.server.acting.lent_acts import act_on_lent
from deadletter.server.auth.guards import check_role, needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    bare_page,
    done,
    is_partial,
    path_to,
    render_page,
    render_part,
)
from deadletter.server.context import Here, ServerContext, Who

from .lent_values import all_queues, duration, load_item, load_lent, load_queue

Name: TypeAlias = Annotated[str, PathParameter(max_length=MAX_NAME + 1)]
ADMIN: Final[dict[str, Any]] = {
    "guards": [needs(Role.ADMIN)],
    "include_in_schema": False,
    "status_code": 200,
    "request_max_body_size": LARGEST,
}
_WITHIN: Final = "5s"
_ACTS: Final = {
    "create": Role.ADMIN,
    "change": Role.ADMIN,
    "delete": Role.ADMIN,
    "clear": Role.ADMIN,
    "items": Role.ADMIN,
    "produce": Role.OPERATOR,
}


@get("/lent", guards=[needs(Role.READER)], include_in_schema=False)
async def show_lent_queues(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    after: Annotated[str, QueryParameter(max_length=MAX_NAME)] = "",
    part: Annotated[Literal["rows"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show the queues of the queue server."""
    page = await load_lent(context, who, after)
    if part is not None:
        return render_part(request, "queues/lent_rows.html", page)
    about = About(title="Lent queues", screen="lent", command="dlq queues lent list")
    return await render_page(request, "queues/lent.html", page, about)


@get("/lent/{name:path}", guards=[needs(Role.READER)], include_in_schema=False)
async def show_lent_queue(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    name: Name,
    partition: Annotated[int, QueryParameter(ge=0, lt=MAX_PARTITIONS)] = 0,
    shown: Annotated[Literal["all", "leased", "scheduled"], QueryParameter(name="list")] = "all",
    after: Annotated[str, QueryParameter(max_length=64)] = "",
    item: Annotated[str, QueryParameter(max_length=64)] = "",
    part: Annotated[Literal["head", "items"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show one queue with its items, or one item; items are for administrators."""
    queue = name.removeprefix("/")
    if item:
        check_role(who, Role.ADMIN)
        found = await load_item(context, who, queue, partition=partition, id=item)
        about = About(title=f"Item of {queue}", screen="lent")
        return await render_page(request, "queues/lent_item.html", found, about)
    page = await load_queue(
        context,
        who,
        queue,
        partition=partition,
        shown=shown,
        after=after,
        sees_items=who.may(Role.ADMIN),
    )
    if part is not None:
        return render_part(request, f"queues/lent_{part}.html", page)
    command = f"dlq queues lent stats {queue}" if queue.isascii() else ""
    about = About(title=queue, screen="lent", command=command)
    return await render_page(request, "queues/lent_queue.html", page, about)


class LentDialog(Struct, frozen=True, kw_only=True):
    """The dialog of an act on a lent queue."""

    act: str
    queue: LeaseQueue | None
    name: str
    lease: str = "1m"
    expire: str = "24h"
    waiting: int = 0
    leased: int = 0
    scheduled: int = 0
    used_by: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    partition: int = 0
    ids: tuple[str, ...] = ()
    back: str = "/lent"

    @property
    def inside(self) -> int:
        """Return all items in the queue."""
        return self.waiting + self.leased + self.scheduled


@get("/lent-queue/dialog", guards=[needs(Role.OPERATOR)], include_in_schema=False)
async def show_lent_dialog(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    act: Annotated[
        Literal["create", "change", "delete", "clear", "items", "produce"], QueryParameter()
    ],
    name: Annotated[str, QueryParameter(max_length=MAX_NAME)] = "",
    partition: Annotated[int, QueryParameter(ge=0, lt=MAX_PARTITIONS)] = 0,
    id: Annotated[str, QueryParameter(max_length=64)] = "",
) -> Response[bytes]:
    """Show the form of an act, with the numbers of now."""
    check_role(who, _ACTS[act])
    page = await _dialog(context, who, act, name, partition=partition, id=id)
    if is_partial(request):
        return render_part(request, "queues/lent_dialog.html", page)
    about = About(title="Lent queues", screen="lent")
    return bare_page(request, "queues/lent_dialog_page.html", page, about)


async def _dialog(
    context: ServerContext, who: Identity, act: str, name: str, *, partition: int, id: str
) -> LentDialog:
    items = context.items
    if items is None:
        raise NotFound("this office lends no queues: SQLite, PostgreSQL and memory do")
    if (name and not who.sees(name)) or (act != "create" and not name):
        raise queue_not_found(name)
    seen = [one for one in await all_queues(items) if who.sees(one.name)]
    others = tuple(one.name for one in seen if one.name != name and not one.dead_queue)
    if act == "create":
        return LentDialog(act=act, queue=None, name="", others=others)
    queue = await items.queue(name)
    stats = await items.stats(name)
    return LentDialog(
        act=act,
        queue=queue,
        name=name,
        lease=duration(queue.lease_timeout),
        expire=duration(queue.expire_timeout),
        waiting=sum(one.total - one.leased for one in stats),
        leased=sum(one.leased for one in stats),
        scheduled=sum(one.scheduled for one in stats),
        used_by=tuple(one.name for one in seen if one.dead_queue == name),
        others=others,
        partition=partition,
        ids=(id,) if id else (),
        back=path_to("lent", name),
    )


class LentForm(Struct, frozen=True, kw_only=True):
    """The options of a queue, as they are written in a form."""

    name: str
    lease: str = "1m"
    expire: str = "24h"
    dead_queue: str = ""
    max_attempts: int = 0
    partitions: int = 1
    reference: str = ""
    reason: str = ""

    def wish(self) -> wire.QueueInfo:
        """Return the request that the protocol has for it."""
        return wire.QueueInfo(
            queue_name=self.name,
            lease_timeout=self.lease,
            expire_timeout=self.expire,
            dead_queue=self.dead_queue,
            max_attempts=self.max_attempts,
            requested_partitions=self.partitions,
            reference=self.reference,
        )


@post("/lent-queue/create", **ADMIN)
async def create_lent_queue(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Create a queue."""
    form = await read_form(request, LentForm)
    await _act(request, who, "queues.create", form.wish(), form.reason)
    path = path_to("lent", form.name)
    notice = Notice(text=f"Queue {form.name} exists.", link=path, link_text="Look at it")
    return done(request, notice, to=path)


@post("/lent-queue/change", **ADMIN)
async def change_lent_queue(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Change the options of a queue; they apply to the items in it as well."""
    form = await read_form(request, LentForm)
    detail = await _act(request, who, "queues.update", form.wish(), form.reason)
    notice = Notice(text=f"{form.name} has these options now: {detail}.")
    return done(request, notice, to=path_to("lent", form.name))


class LentDeletion(Struct, frozen=True, kw_only=True):
    """A queue to delete; `typed` repeats its name."""

    name: str
    typed: str = ""
    force: bool = False
    reason: str = ""


@post("/lent-queue/delete", **ADMIN)
async def delete_lent_queue(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Delete a queue whose name was typed."""
    form = await read_form(request, LentDeletion)
    if form.typed != form.name:
        raise ConfigError(f"type the name {form.name!r} to delete it: nothing was done")
    wish = wire.DeleteQueue(queue_name=form.name, force=form.force)
    detail = await _act(request, who, "queues.delete", wish, form.reason)
    return done(request, Notice(text=f"Queue {form.name} is deleted, {detail}."), to="/lent")


class ClearForm(Struct, frozen=True, kw_only=True):
    """Which items of a queue to delete; `typed` is their number where leased ones go, too."""

    name: str
    waiting: bool = False
    scheduled: bool = False
    leased: bool = False
    typed: str = ""
    reason: str = ""


@post("/lent-queue/clear", **ADMIN)
async def clear_lent_queue(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Delete the waiting or scheduled items of a queue; leased ones if that is typed."""
    form = await read_form(request, ClearForm)
    if form.leased and form.typed != form.name:
        raise ConfigError(
            f"type the name {form.name!r} to delete leased items as well: nothing was done"
        )
    wish = wire.ClearRequest(
        queue_name=form.name,
        queue=form.waiting or form.leased,
        scheduled=form.scheduled,
        destructive=form.leased,
    )
    detail = await _act(request, who, "queue.clear", wish, form.reason)
    notice = Notice(text=f"{form.name}: {detail}.")
    return done(request, notice, to=path_to("lent", form.name))


class ItemsForm(Struct, frozen=True, kw_only=True):
    """Items of one partition."""

    name: str
    partition: int = 0
    id: tuple[str, ...] = ()
    reason: str = ""


@post("/lent-queue/items", **ADMIN)
async def delete_lent_items(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Delete the chosen items, leased or not."""
    form = await read_form(request, ItemsForm)
    wish = wire.DeleteItems(queue_name=form.name, partition=form.partition, ids=list(form.id))
    detail = await _act(request, who, "storage/items.delete", wish, form.reason)
    notice = Notice(text=f"{form.name}: {detail}.")
    return done(request, notice, to=path_to("lent", form.name, partition=str(form.partition)))


class ProduceForm(Struct, frozen=True, kw_only=True):
    """One item to add."""

    name: str
    payload: str = ""
    kind: str = ""
    reference: str = ""


@post(
    "/lent-queue/produce",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def produce_lent_item(
    request: Request[Any, Any, Any], context: Here, who: Who
) -> Response[bytes]:
    """Add one item to a queue."""
    form = await read_form(request, ProduceForm)
    item = wire.ProduceItem(utf8=form.payload, kind=form.kind, reference=form.reference)
    wish = wire.ProduceRequest(queue_name=form.name, request_timeout=_WITHIN, items=[item])
    await _act(request, who, "queue.produce", wish, "")
    notice = Notice(text=f"{many(1, 'item')} added to {form.name}.")
    return done(request, notice, to=path_to("lent", form.name))


async def _act(
    request: Request[Any, Any, Any], who: Identity, name: str, wish: wire.WireMessage, reason: str
) -> str:
    state = request.app.state
    return await act_on_lent(state.context, state.lending, who, name, wish, reason=reason)


routes: Final[list[Any]] = [
    *(show_lent_queues, show_lent_queue, show_lent_dialog),
    *(create_lent_queue, change_lent_queue, delete_lent_queue, clear_lent_queue),
    *(delete_lent_items, produce_lent_item),
]
