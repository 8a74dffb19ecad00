"""The routes of repairs: choose, look at what would change, repair, plan the replay."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError, Conflict, NotFound, QueryError
from deadletter.core.letter import DeadLetter
from deadletter.core.patch import parse_patch
from deadletter.core.query.parse import MAX_TEXT
from deadletter.core.text import many
from deadletter.office.repair import MOST_SAMPLES, SAMPLES
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replays import ReplayRequest
from deadletter.office.selection import Chosen
from deadletter.office.view import reveal
from deadletter.server.acting import replay_acts
from deadletter.server.acting.choice import Choice, choose
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.letters.act_routes import actor_of
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import About, done, path_to, redirect, render_page, render_part
from deadletter.server.console.problems import sentence
from deadletter.server.console.replays.care_form import CareForm
from deadletter.server.context import Here, Who
from deadletter.server.search import Id, Searches

from .desk import apply, desk_of, judge
from .edits import group_query, offer_for
from .page import RepairForm, command_of, load_new, load_repair

ACT: Final = [needs(Role.OPERATOR)]
_NEVER_STORED: Final = {"cache-control": "no-store, no-transform"}
Sender = NamedDependency[ReplaySender]  # as `sender`
Key = Annotated[str, PathParameter(max_length=32)]


@get("/repairs/new", guards=[needs(Role.OPERATOR, recorded=True)], include_in_schema=False)
async def new_repair(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    q: Annotated[str, QueryParameter(max_length=MAX_TEXT)] = "",
    from_: Annotated[str, QueryParameter(name="from", max_length=64)] = "",
    text: Annotated[bool, QueryParameter()] = False,
) -> Response[bytes]:
    """
    Show the form of a repair; nothing is changed.

    With `from`, the change is what was edited in that letter. It shows values of the
    message, which the audit notes.
    """
    edited: DeadLetter | None = None
    if from_:
        edited = await context.office.letters.get(from_, sources=who.sources)
        await reveal(context.store, edited, who.by())
        q = q or group_query(edited)
    form = RepairForm(q=q, text=text)
    lately = desk_of(request).of(who)
    page = await load_new(context, who, searching, form, edited=edited, lately=lately)
    return await _render_new(request, page)


@post(
    "/repairs", guards=ACT, include_in_schema=False, status_code=200, request_max_body_size=LARGEST
)
async def begin_repair(
    request: Request[Any, Any, Any], context: Here, who: Who, searching: Searches
) -> Response[bytes]:
    """Freeze the letters of a repair, and look at what it would change; nothing is changed."""
    form = await read_form(request, RepairForm)
    problem = ""
    try:
        patch = parse_patch(form.patch, form.was)
        choice = Choice(query=form.q.strip() or None, free_text=form.text)
        found = await choose(context, who, searching, choice)
    except (QueryError, ConfigError, NotFound) as error:
        problem = sentence(str(error))
        page = await load_new(context, who, searching, form, problem=problem)
        return await _render_new(request, page, status=400)
    repair = desk_of(request).open(who, found, patch)
    await judge(actor_of(request, context, who), repair)
    return redirect(repair.path)


async def _render_new(
    request: Request[Any, Any, Any], page: Any, *, status: int = 200
) -> Response[bytes]:
    about = About(
        title="Repair letters",
        screen="letters",
        command=command_of(page.form.q, "", ""),
        query=page.form.q,
    )
    return await render_page(
        request, "repairs/new.html", page, about, status=status, headers=_NEVER_STORED
    )


@get("/letters/{id:str}/repair-offer", guards=ACT, include_in_schema=False)
async def show_offer(
    request: Request[Any, Any, Any], context: Here, who: Who, searching: Searches, id: Id
) -> Response[bytes]:
    """Show how many letters of its group need the change that was made in a letter."""
    letter = await context.office.letters.get(id, sources=who.sources)
    offer = await offer_for(context, who, searching, letter)
    return render_part(request, "repairs/offer.html", offer)


@get("/repairs/{key:str}", guards=ACT, include_in_schema=False)
async def show_repair(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    key: Key,
    *,
    samples: Annotated[int, QueryParameter(ge=0, le=MOST_SAMPLES)] = SAMPLES,
    part: Annotated[str | None, QueryParameter(max_length=20)] = None,
) -> Response[bytes]:
    """Show what a repair would change, how far it is, or what it has done."""
    repair = desk_of(request).find(who, key)
    page = await load_repair(context, repair, samples)
    if part is not None:
        return render_part(request, "repairs/stage.html", page, headers=_NEVER_STORED)
    about = About(
        title="Repair letters",
        screen="letters",
        command=command_of(page.query, repair.patch.text, repair.patch.was_text),
        query=page.query,
    )
    return await render_page(request, "repairs/repair.html", page, about, headers=_NEVER_STORED)


class ApplyForm(Struct, frozen=True, kw_only=True):
    """The reason of a repair, and the number of letters that the page named."""

    reason: Annotated[str, Meta(max_length=4_000)] = ""
    expect: int


@post("/repairs/{key:str}", guards=ACT, include_in_schema=False, status_code=200)
async def apply_repair(
    request: Request[Any, Any, Any], context: Here, who: Who, key: Key
) -> Response[bytes]:
    """Make a repair: change the letters that would change when somebody looked."""
    form = await read_form(request, ApplyForm)
    repair = desk_of(request).find(who, key)
    if not form.reason.strip():
        raise ConfigError("a repair needs a reason: it stands in the audit of each letter")
    if form.expect != len(repair.changing):
        raise Conflict(
            f"the repair would change {many(len(repair.changing), 'letter')}, not"
            f" {form.expect:,}: look at it again"
        )
    notice = await apply(actor_of(request, context, who), repair, form.reason.strip())
    if notice is None:
        return redirect(repair.path)
    return done(request, notice, to=repair.path, anew=True)


@post("/repairs/{key:str}/replay", guards=ACT, include_in_schema=False, status_code=200)
async def replay_repaired(
    request: Request[Any, Any, Any], context: Here, who: Who, sender: Sender, key: Key
) -> Response[bytes]:
    """Plan the replay of exactly the letters that were repaired; nothing is sent yet."""
    repair = desk_of(request).find(who, key)
    if repair.running is not None or not repair.done:
        raise Conflict("no letter was repaired yet: there is nothing to replay")
    if not repair.replay:
        wanted = ReplayRequest(
            chosen=Chosen(tuple(repair.done), repair.query),
            by=who.by(f"repaired: {repair.reason}"[:1_000]),
            care=CareForm().care(),
        )
        campaign = await replay_acts.freeze(context, who, sender, wanted)
        repair.replay = campaign.id
    text = f"The replay of {many(len(repair.done), 'letter')} is planned. Nothing is sent yet."
    to = path_to("replays", repair.replay)
    return done(request, Notice(text=text), to=to, anew=True)


routes: Final[list[Any]] = [
    new_repair,
    begin_repair,
    show_repair,
    apply_repair,
    replay_repaired,
    show_offer,
]
