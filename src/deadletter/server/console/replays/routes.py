"""The routes of these screens."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from deadletter.core.access import Role
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.replay_sender import ReplaySender
from deadletter.office.replay_verdicts import CAP
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    done,
    is_partial,
    path_to,
    redirect,
    render_page,
    render_part,
)
from deadletter.server.context import Here, Who
from deadletter.server.search import Searches

from . import acts, outcome_sheet
from .acts import Agreed, Counted, Reasoned
from .care_form import (
    FIRST,
    CanaryParam,
    FlagParam,
    HaltParam,
    How,
    HowParam,
    PlanForm,
    RateParam,
    ReasonParam,
    SendParam,
    number_of,
)
from .planning import NewForm, command_of, create, load_new
from .replay_list import Tab, load_list
from .replay_page import Part, Shown, load_replay

READ: Final = [needs(Role.READER)]
ACT: Final = [needs(Role.OPERATOR)]
Name: TypeAlias = Annotated[str, PathParameter(max_length=64)]
Sender: TypeAlias = NamedDependency[ReplaySender]  # as `sender`
Asked: TypeAlias = Literal["start", "cancel", "approve", "resume"]


@get("/replays", guards=READ, include_in_schema=False)
async def list_replays(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    *,
    tab: Annotated[Tab, QueryParameter(name="state")] = "all",
    after: Annotated[str | None, QueryParameter(max_length=64)] = None,
    part: Annotated[Literal["rows"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show the replays, latest first."""
    page = await load_list(context, who, tab, after)
    if part is not None:
        return render_part(request, "replays/rows.html", page)
    about = About(title="Replays", screen="replays", command="dlq replay status", api="/replays")
    return await render_page(request, "replays/list.html", page, about)


@get("/replays/new", guards=ACT, include_in_schema=False)
async def plan_replay(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    *,
    q: Annotated[str, QueryParameter(max_length=MAX_TEXT)] = "",
    ids: Annotated[list[str] | None, QueryParameter(max_items=500)] = None,
    text: FlagParam = False,
    how: HowParam = "careful",
    canary: CanaryParam = FIRST,
    ramp: FlagParam = False,
    halt: HaltParam = "",
    rate: RateParam = "",
    limit: Annotated[str, QueryParameter(max_length=12)] = "",
    key_order: FlagParam = False,
    to: Annotated[str, QueryParameter(max_length=512)] = "",
    through: Annotated[str, QueryParameter(max_length=64)] = "",
    reason: ReasonParam = "",
    cap: Annotated[int, QueryParameter(ge=1, le=1_000)] = CAP,
    key: Annotated[str, QueryParameter(max_length=64)] = "",
    shown: FlagParam = False,
    part: Annotated[Literal["count"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show the page on which a replay is planned; nothing is stored."""
    form = NewForm(
        q=q,
        ids=tuple(ids or ()),
        text=text,
        how=how,
        canary=canary,
        ramp=ramp or not shown,
        halt=number_of(halt, "the share"),
        rate=rate,
        limit=limit,
        key_order=key_order or not shown,
        cap=cap,
        key=key,
        to=to,
        through=through,
        reason=reason,
    )
    page = await load_new(context, who, searching, form)
    if part is not None:
        return render_part(request, "replays/count.html", page)
    about = About(title="Plan a replay", screen="replays", command=command_of(form), query=q)
    return await render_page(request, "replays/new.html", page, about)


@post(
    "/replays", guards=ACT, include_in_schema=False, status_code=200, request_max_body_size=LARGEST
)
async def create_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, searching: Searches, sender: Sender
) -> Response[bytes]:
    """Freeze the letters of a replay; they are judged in the background."""
    form = await read_form(request, NewForm)
    made = await create(request, context, who, searching, sender, form)
    return redirect(path_to("replays", made))


@get("/replays/{name:str}", guards=READ, include_in_schema=False)
async def show_replay(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    name: Name,
    *,
    outcome: Annotated[Shown, QueryParameter()] = "all",
    after: Annotated[int, QueryParameter(ge=0, le=10**9)] = 0,
    send: SendParam = None,
    shown: FlagParam = False,
    how: HowParam = "careful",
    canary: CanaryParam = FIRST,
    ramp: FlagParam = False,
    halt: HaltParam = "",
    key_order: FlagParam = False,
    reason: ReasonParam = "",
    part: Annotated[Part | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show one replay, or one part of its page."""
    form = _plan_form(send, how, canary, halt, reason, ramp=ramp, key_order=key_order)
    page = await load_replay(
        context, who, name, part=part, shown=outcome, after=after, form=form if shown else None
    )
    if part is not None:
        return render_part(request, f"replays/{part}.html", page)
    campaign = page.campaign
    about = About(
        title=f"Replay {campaign.id[:8]}",
        screen="replays",
        command=f"dlq replay status {campaign.id}",
        api=f"/replays/{campaign.id}",
    )
    return await render_page(request, "replays/replay.html", page, about)


@get("/replays/{name:str}/ask/{act:str}", guards=ACT, include_in_schema=False)
async def ask(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    name: Name,
    *,
    act: Annotated[Asked, PathParameter()],
    send: SendParam = None,
    shown: FlagParam = False,
    how: HowParam = "careful",
    canary: CanaryParam = FIRST,
    ramp: FlagParam = False,
    halt: HaltParam = "",
    key_order: FlagParam = False,
    reason: ReasonParam = "",
) -> Response[bytes]:
    """Ask again before an act, with the number of letters as it is now."""
    form = _plan_form(send, how, canary, halt, reason, ramp=ramp, key_order=key_order)
    is_plan = act in {"start", "approve"}
    page = await load_replay(
        context, who, name, part="preview" if is_plan else "stage", form=form if shown else None
    )
    if act == "start":
        acts.check_startable(page)
    if is_partial(request):
        return render_part(request, f"replays/ask_{act}.html", page)
    about = About(title=f"Replay {page.campaign.id[:8]}", screen="replays")
    asked = acts.AskPage(act=act, replay=page)
    return await render_page(request, "replays/ask.html", asked, about)


@post("/replays/{name:str}/start", guards=ACT, include_in_schema=False, status_code=200)
async def start_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, sender: Sender, name: Name
) -> Response[bytes]:
    """Start a planned replay as its form says, or ask for the approval of somebody else."""
    form = await read_form(request, Agreed)
    return await _shown(request, name, await acts.start(context, who, sender, name, form))


@post("/replays/{name:str}/approve", guards=ACT, include_in_schema=False, status_code=200)
async def approve_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Agree to a replay that somebody else planned."""
    form = await read_form(request, Counted)
    return await _shown(request, name, await acts.approve(context, who, name, form))


@post("/replays/{name:str}/pause", guards=ACT, include_in_schema=False, status_code=200)
async def pause_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """Pause a replay."""
    form = await read_form(request, Reasoned)
    return await _shown(request, name, await acts.pause(context, who, name, form))


@post("/replays/{name:str}/resume", guards=ACT, include_in_schema=False, status_code=200)
async def resume_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, sender: Sender, name: Name
) -> Response[bytes]:
    """Continue a paused replay."""
    form = await read_form(request, Reasoned)
    return await _shown(request, name, await acts.resume(context, who, sender, name, form))


@post("/replays/{name:str}/cancel", guards=ACT, include_in_schema=False, status_code=200)
async def cancel_replay(
    request: Request[Any, Any, Any], context: Here, who: Who, name: Name
) -> Response[bytes]:
    """End a replay."""
    form = await read_form(request, Reasoned)
    return await _shown(request, name, await acts.cancel(context, who, name, form))


async def _shown(request: Request[Any, Any, Any], name: str, notice: Notice) -> Response[bytes]:
    """Say what was done on the page of the replay, which may be another one by now."""
    return done(request, notice, to=path_to("replays", name), anew=True)


def _plan_form(
    send: SendParam, how: How, canary: int, halt: str, reason: str, *, ramp: bool, key_order: bool
) -> PlanForm:
    return PlanForm(
        send=tuple(send or ()),
        shown=True,
        how=how,
        canary=canary,
        ramp=ramp,
        halt=number_of(halt, "the share"),
        key_order=key_order,
        reason=reason,
    )


routes: Final[list[Any]] = [
    *outcome_sheet.routes,
    list_replays,
    plan_replay,
    create_replay,
    show_replay,
    ask,
    start_replay,
    approve_replay,
    pause_replay,
    resume_replay,
    cancel_replay,
]
