"""Acts on one letter: every verb, notes, and looking at what is masked."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Meta, Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import LetterHead, State
from deadletter.office.letters import LONGEST_NOTE
from deadletter.office.triage.layout import Form
from deadletter.office.verbs import BY_NAME, VERBS, Verb
from deadletter.office.view import reveal
from deadletter.server.acting.letter_acts import act_on_letter, note_on_letter
from deadletter.server.auth.guards import needs
from deadletter.server.console.bounds import shortened
from deadletter.server.console.forms import LARGEST, read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import (
    About,
    Console,
    done,
    is_partial,
    path_to,
    redirect,
    render_page,
    render_part,
)
from deadletter.server.console.undo_keys import Opposite
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Id, Searches

from .page import AT_ONCE, SHORT, InSearch, View, about_letter, kept_search, load_letter

_LONGEST_REASON: Final = 4_000
_TYPED: Final = 6  # characters of an id that confirm a purge
_NEVER_STORED: Final = {"cache-control": "no-store, no-transform"}


class ActForm(Struct, frozen=True, kw_only=True):
    """The fields of the dialog of a verb."""

    reason: Annotated[str, Meta(max_length=_LONGEST_REASON)] = ""
    unconfirmed: bool = False
    typed: str = ""


class NoteForm(Struct, frozen=True, kw_only=True):
    """The form of a note."""

    text: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""


class RevealForm(Struct, frozen=True, kw_only=True):
    """
    The form that shows what is masked.

    No field is named `form`: scripts would find it in place of the form.
    """

    shape: Form = Form.PRETTY
    start: int = 0
    headers: int = 0
    original: bool = False
    part: str = ""


class ActDialog(Struct, frozen=True, kw_only=True):
    """The dialog of a verb: what it does, and what it asks for."""

    verb: str
    title: str
    short: str
    error: str
    state: str
    about: str
    action: str
    confirm: str
    kind: str
    reason: str
    needs_reason: bool
    late: str  # what to know if the letter waits for an outcome; empty if it does not
    typed: str  # what has to be typed; empty if nothing
    back: str
    is_whole: bool  # a page of its own, without scripts


class ReproDialog(Struct, frozen=True, kw_only=True):
    """The dialog that downloads a failing test."""

    short: str
    app: str
    action: str
    revealed: str
    command: str
    back: str
    is_whole: bool


def _routes(verb: Verb) -> list[HTTPRouteHandler]:
    """Return the routes of one verb: its dialog, and the act itself."""

    async def show(
        request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
    ) -> Response[bytes]:
        head = (await context.office.letters.get(id, sources=who.sources)).head
        page = _dialog(verb, head, is_whole=not is_partial(request))
        if not page.is_whole:
            return render_part(request, "letter/act_dialog.html", page)
        about = About(title=page.title, screen="letters")
        return await render_page(request, "letter/act_page.html", page, about)

    async def act(
        request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
    ) -> Response[bytes]:
        form = await read_form(request, ActForm)
        return await _act(request, context, who, id=id, verb=verb, form=form)

    path = f"/letters/{{id:str}}/{verb.name}"
    guards = [needs(verb.role)]
    return [
        get(f"{path}/dialog", guards=guards, include_in_schema=False)(show),
        post(
            path,
            guards=guards,
            include_in_schema=False,
            status_code=200,
            request_max_body_size=LARGEST,
        )(act),
    ]


async def _act(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    *,
    id: str,
    verb: Verb,
    form: ActForm,
) -> Response[bytes]:
    head = (await context.office.letters.get(id, sources=who.sources)).head
    if verb.new is None and form.typed.strip().lower() != head.id[:_TYPED]:
        raise ConfigError(
            f"to {verb.name} this letter, type the first {_TYPED} characters of its id:"
            f" {head.id[:_TYPED]}"
        )
    await act_on_letter(
        context, who, head.id, verb, reason=form.reason, unconfirmed=form.unconfirmed
    )
    text = f"Letter {head.id[:SHORT]} {verb.done}."
    if verb.new is None:
        return done(request, Notice(text=text), to="/letters")
    undo = ""
    if verb.opposite:
        console: Console = request.app.state.console
        undo = console.undoing.keep(who, _opposite(BY_NAME[verb.opposite], head.id))
    notice = Notice(text=text, undo=undo)
    return done(request, notice, to=path_to("letters", head.id))


def _opposite(verb: Verb, id: str) -> Opposite:
    async def undo(context: ServerContext, who: Identity) -> Notice:
        await act_on_letter(context, who, id, verb, reason="undone")
        now = f": it is {verb.new} again" if verb.new is State.PENDING else ""
        return Notice(text=f"Letter {id[:SHORT]} {verb.done}{now}.")

    return undo


def _dialog(verb: Verb, head: LetterHead, *, is_whole: bool) -> ActDialog:
    is_waiting = head.state is State.REPLAYING and verb.takes_unconfirmed
    is_final = verb.new is None
    return ActDialog(
        verb=verb.name,
        title=f"{verb.name.capitalize()} letter {head.id[:SHORT]}?",
        short=head.id[:SHORT],
        error=shortened(": ".join(p for p in (head.error_name, head.error_text) if p), 400),
        state=head.state,
        about=verb.about,
        action=path_to("letters", head.id, verb.name),
        confirm=f"{verb.name.capitalize()} 1 letter",
        kind="harm" if verb.danger else "primary",
        reason=verb.reason,
        needs_reason=verb.needs_reason,
        late=verb.late_outcome if is_waiting else "",
        typed=head.id[:_TYPED] if is_final else "",
        back=path_to("letters", head.id),
        is_whole=is_whole or is_final,
    )


@post(
    "/letters/{id:str}/notes",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def add_note(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """Add a note to a letter."""
    form = await read_form(request, NoteForm)
    head = (await context.office.letters.get(id, sources=who.sources)).head
    await note_on_letter(context, who, head.id, form.text)
    notice = Notice(text=f"Note added to letter {head.id[:SHORT]}.")
    return done(request, notice, to=path_to("letters", head.id) + "#story")


@post(
    "/letters/{id:str}/contents/revealed",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=LARGEST,
)
async def reveal_contents(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    id: FromPath[str],
    in_: InSearch = "",
) -> Response[bytes]:
    """Show a letter with what is masked; the audit has it before anything is shown."""
    form = await read_form(request, RevealForm)
    letter = await context.office.letters.get(id, sources=who.sources)
    await reveal(context.store, letter, who.by())
    view = View(
        form=form.shape,
        start=form.start,
        headers=form.headers,
        original=form.original,
        reveal=True,
        query=kept_search(in_),
    )
    page = await searching.look(load_letter(context, who, letter, view))
    if is_partial(request):
        part = "lines" if form.part == "lines" else "contents"
        return render_part(request, f"letter/{part}.html", page, headers=_NEVER_STORED)
    return await render_page(
        request, "letter/page.html", page, about_letter(page), headers=_NEVER_STORED
    )


@get("/letters/{id:str}/contents/revealed", guards=[needs(Role.READER)], include_in_schema=False)
async def lead_back(id: FromPath[str]) -> Response[bytes]:
    """Lead to the letter: what was revealed by a form has no address."""
    return redirect(path_to("letters", id))


@get("/letters/{id:str}/repro", guards=[needs(Role.READER)], include_in_schema=False)
async def show_repro(
    request: Request[Any, Any, Any], context: Here, who: Who, id: Id
) -> Response[bytes]:
    """Show the form that downloads a failing test of a letter."""
    head = (await context.office.letters.get(id, sources=who.sources)).head
    api = ("api", "v1", "letters", head.id, "repro")
    app = context.settings.app or ""
    page = ReproDialog(
        short=head.id[:SHORT],
        app=app,
        action=path_to(*api),
        revealed=path_to(*api, "revealed"),
        command=f"dlq repro {head.id[:SHORT]} {app or 'shop:app'}",
        back=path_to("letters", head.id),
        is_whole=not is_partial(request),
    )
    if not page.is_whole:
        return render_part(request, "letter/repro_dialog.html", page)
    about = About(title=f"Failing test of letter {page.short}", screen="letters")
    return await render_page(request, "letter/repro_page.html", page, about)


routes: Final[list[Any]] = [
    *(route for verb in VERBS for route in _routes(verb)),
    *(add_note, reveal_contents, lead_back, show_repro),
]
assert BY_NAME.keys() >= AT_ONCE
