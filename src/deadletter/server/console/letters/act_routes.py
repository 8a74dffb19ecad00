"""Acts on many letters: the dialog of each, and the routes that do it."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError
from deadletter.core.query import Op, Term, literal, show
from deadletter.core.query.parse import MAX_TEXT
from deadletter.office.selection import Chosen
from deadletter.office.verbs import VERBS, Verb
from deadletter.server.acting.choice import Choice, choose
from deadletter.server.acting.letter_acts import choose_for_act
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    Console,
    done,
    is_partial,
    lead,
    own_path,
    page_before,
    path_to,
    render_page,
    render_part,
    telling,
)
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Searches

from .act_dialogs import Choosing, check_number, load_dialog
from .bulk_acts import Actor, note_act, run_act, verb_act
from .letter_list import PAGE

_TWO: Final = 2

Named = Annotated[list[str] | None, QueryParameter(max_length=PAGE)]
Typed = Annotated[str, QueryParameter(max_length=MAX_TEXT)]


@get("/letters/dialog", guards=[needs(Role.READER)], include_in_schema=False)
async def show_dialog(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    verb: Annotated[str, QueryParameter(max_length=40)],
    id: Named = None,
    q: Typed = "",
    all: Annotated[bool, QueryParameter()] = False,
) -> Response[bytes]:
    """Show the dialog of an act on letters; replays and comparisons have pages instead."""
    choosing = Choosing(ids=tuple(id or ()), query=q.strip(), is_all=all)
    if verb in _LEADS_TO:
        return lead(request, _LEADS_TO[verb](choosing))
    if not choosing.ids and not choosing.is_all:
        raise ConfigError("no letter was chosen: choose some, or all letters of the search")
    page = await load_dialog(context, who, searching, verb, choosing)
    if is_partial(request):
        return render_part(request, "letters/parts/dialog.html", page)
    about = About(title=page.title, screen="letters", query=choosing.query)
    return await render_page(request, "letters/act.html", page, about)


def _replay_path(choosing: Choosing) -> str:
    if choosing.by_query:
        return path_to("replays", "new", q=choosing.query or "*")
    named = Term("id", Op.IS, tuple(map(literal, choosing.ids)))
    return path_to("replays", "new", q=show(named))


def _compare_path(choosing: Choosing) -> str:
    ids = choosing.ids
    if len(ids) != _TWO:
        raise ConfigError(f"two letters can be compared, and {len(ids)} were chosen: choose two")
    return path_to("letters", ids[0], "compare", **{"with": ids[1]})


_LEADS_TO: Final = {"replay": _replay_path, "compare": _compare_path}


Id = Annotated[str, Meta(min_length=1, max_length=64)]


class ActForm(Struct, frozen=True, kw_only=True):
    """The form of an act: the letters, the reason, and what people confirm."""

    id: tuple[Id, ...] = ()
    q: Annotated[str, Meta(max_length=MAX_TEXT)] = ""
    expect: int | None = None
    reason: Annotated[str, Meta(max_length=4_000)] = ""
    unconfirmed: bool = False
    free_text: bool = False
    typed: Annotated[str, Meta(max_length=20)] = ""
    count: int | None = None  # letters that will be changed, as the dialog said
    back: Annotated[str, Meta(max_length=4_000)] = ""

    def choice(self) -> Choice:
        """Return the letters that it names."""
        if self.id:
            return Choice(ids=self.id)
        if not self.q:
            raise ConfigError("no letter was chosen: choose some, or all letters of the search")
        if self.expect is None:
            raise ConfigError("the form has no `expect`: open the dialog again")
        return Choice(query=self.q, expect=self.expect, free_text=self.free_text)

    def missing(self, chosen: Chosen) -> int:
        """Return how many letters were named that are not there for this person."""
        return len({id_.lower() for id_ in self.id}) - len(chosen.ids) if self.id else 0


def _act_route(verb: Verb) -> HTTPRouteHandler:
    """Return the route of one verb."""

    async def act(
        request: Request[Any, Any, Any], context: Here, who: Who, searching: Searches
    ) -> Response[bytes]:
        form = await read_form(request, ActForm)
        if verb.role is Role.ADMIN:
            check_number(form.typed, form.count or 0)
        chosen = await choose_for_act(context, who, searching, form.choice(), verb)
        actor = actor_of(request, context, who)
        act = verb_act(actor, verb, chosen.ids, form.reason, unconfirmed=form.unconfirmed)
        notice = await run_act(actor, act, chosen.ids, missing=form.missing(chosen))
        return _answer(request, notice, form)

    return post(
        f"/letters/{verb.name}",
        guards=[needs(verb.role)],
        include_in_schema=False,
        status_code=200,
        request_max_body_size=LARGEST,
        name=f"console_{verb.name}_letters",
    )(act)


@post(
    "/letters/notes",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def add_notes(
    request: Request[Any, Any, Any], context: Here, who: Who, searching: Searches
) -> Response[bytes]:
    """Add a note to letters."""
    form = await read_form(request, ActForm)
    chosen = await choose(context, who, searching, form.choice())
    actor = actor_of(request, context, who)
    act = note_act(actor, chosen.ids, form.reason)
    notice = await run_act(actor, act, chosen.ids, missing=form.missing(chosen))
    return _answer(request, notice, form)


def actor_of(request: Request[Any, Any, Any], context: ServerContext, who: Identity) -> Actor:
    """Return the person of a request as one who acts on letters."""
    console: Console = request.app.state.console
    return Actor(console=console, context=context, who=who, tell=telling(request))


def _answer(request: Request[Any, Any, Any], notice: Notice, form: ActForm) -> Response[bytes]:
    """Say what was done; lead to the page of an act that goes on."""
    if notice.link:
        return lead(request, notice.link)
    return done(request, notice, to=own_path(form.back) if form.back else page_before(request))


routes: Final[list[Any]] = [show_dialog, add_notes, *map(_act_route, VERBS)]
