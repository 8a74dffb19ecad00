"""The page that edits the message of a letter: shows what changes, then saves it."""

from typing import Any, Final

from litestar import Request, Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import Conflict
from deadletter.core.letter import OPEN, Changes, DeadLetter
from deadletter.office.audit import AuditFilter
from deadletter.office.diff import differences
from deadletter.office.view import act_text, reveal
from deadletter.server.auth.guards import needs
from deadletter.server.console.forms import read_form
from deadletter.server.console.notices import Notice
from deadletter.server.console.pages import About, done, path_to, render_page, render_part
from deadletter.server.context import Here, ServerContext, Who

from .differing import Changed, changed_parts
from .drafts import (
    BASE64,
    JSON,
    KEEP,
    TEXT,
    Draft,
    DraftForm,
    Problems,
    changes_of,
    digest_of,
    draft_of,
    is_nothing,
    laid_out,
    on_top,
    typed_draft,
    with_blanks,
)
from .page import SHORT, InSearch, kept_search

_LARGEST: Final = 4 * 1024 * 1024  # bytes of the form
_CHANGES: Final = 60_000  # bytes of HTML
_NEVER_STORED: Final = {"cache-control": "no-store, no-transform"}
_SAVES: Final = frozenset({"save", "plan"})
_TITLES: Final = {JSON: "JSON", TEXT: "text", BASE64: "base64", KEEP: "leave the body as it is"}


class EditPage(Struct, frozen=True, kw_only=True):
    """The form of a letter, what is typed in it, and what that changes."""

    id: str
    short: str
    error: str
    state: str
    can_edit: bool
    size: int
    revision: int
    draft: Draft
    forms: tuple[tuple[str, str], ...]
    base: str
    seen: str  # empty: the changes cannot be saved yet
    changes: tuple[Changed, ...]
    is_checked: bool
    problems: dict[str, str]
    problem: str  # about all of it
    theirs: str  # what somebody else did meanwhile
    reason: str
    paths: dict[str, str]


@get(
    "/letters/{id:str}/edit", guards=[needs(Role.OPERATOR, recorded=True)], include_in_schema=False
)
async def show_edit(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str], in_: InSearch = ""
) -> Response[bytes]:
    """Show the form of a letter. It shows the message unmasked, which the audit notes."""
    letter = await context.office.letters.get(id, sources=who.sources)
    if letter.head.state in OPEN:
        await reveal(context.store, letter, who.by())
    draft = draft_of(letter.message)
    page = _page(letter, draft, query=in_)
    return await _render(request, page)


@post(
    "/letters/{id:str}/edit",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=_LARGEST,
)
async def edit(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str], in_: InSearch = ""
) -> Response[bytes]:
    """Show what the typed text changes, or save it if exactly that was shown before."""
    form = await read_form(request, DraftForm)
    letter = await context.office.letters.get(id, sources=who.sources)
    page, changes = _checked(letter, form, query=in_)
    if letter.head.state not in OPEN:
        return await _render(request, page, status=409)
    if form.revision != letter.head.revision:
        return await _changed_meanwhile(request, context, who, letter, form=form, query=in_)
    if changes is None:
        return await _render(request, page, status=400)
    if form.step not in _SAVES or form.seen != page.seen or not page.seen:
        return await _render(request, page)
    try:
        await context.office.letters.edit(
            letter.id, changes, who.by(form.reason), revision=form.revision
        )
    except Conflict:
        now = await context.office.letters.get(id, sources=who.sources)
        return await _changed_meanwhile(request, context, who, now, form=form, query=in_)
    if form.step == "plan":
        text = f"Letter {page.short} edited. Plan its replay here."
        return done(request, Notice(text=text), to=page.paths["replay"])
    parts = ", ".join(part.part for part in page.changes)
    notice = Notice(
        text=f"Letter {page.short} edited: {parts}.",
        link=page.paths["difference"],
        link_text="What was changed",
    )
    return done(request, notice, to=page.paths["letter"])


@post(
    "/letters/{id:str}/edit/changes",
    guards=[needs(Role.OPERATOR)],
    include_in_schema=False,
    status_code=200,
    request_max_body_size=_LARGEST,
)
async def show_changes(
    request: Request[Any, Any, Any], context: Here, who: Who, id: FromPath[str]
) -> Response[bytes]:
    """Show what the typed text changes, while it is being typed."""
    form = await read_form(request, DraftForm)
    letter = await context.office.letters.get(id, sources=who.sources)
    page, _ = _checked(letter, form)
    return render_part(request, "letter/edit_changes.html", page, headers=_NEVER_STORED)


def _checked(
    letter: DeadLetter, form: DraftForm, *, query: str = ""
) -> tuple[EditPage, Changes | None]:
    """Return the page of what was typed, and the changes if they are valid."""
    typed = typed_draft(form, letter.message)
    if form.step == "lay-out":
        typed = laid_out(typed)
    base, reason = form.base, form.reason
    try:
        changes = changes_of(typed, letter.message)
    except Problems as found:
        page = _page(letter, typed, base=base, reason=reason, problems=found.told, query=query)
        return page, None
    page = _page(letter, typed, base=base, reason=reason, changes=changes, query=query)
    return page, changes


async def _changed_meanwhile(
    request: Request[Any, Any, Any],
    context: ServerContext,
    who: Identity,
    letter: DeadLetter,
    *,
    form: DraftForm,
    query: str,
) -> Response[bytes]:
    """Answer 412 with what was typed, on top of what the letter is now."""
    await reveal(context.store, letter, who.by())
    now = draft_of(letter.message)
    typed = on_top(typed_draft(form, letter.message), form.base, now)
    theirs = await _theirs(context, letter)
    problems: dict[str, str] = {}
    changes: Changes | None = None
    try:
        changes = changes_of(typed, letter.message)
    except Problems as found:
        problems = found.told
    page = _page(
        letter,
        typed,
        base=now.base,
        reason=form.reason,
        changes=changes,
        problems=problems,
        theirs=theirs,
        query=query,
    )
    return await _render(request, page, status=412)


async def _theirs(context: ServerContext, letter: DeadLetter) -> str:
    wanted = AuditFilter(target=letter.id)
    for entry in await context.office.latest_audit(wanted, limit=10):
        if entry.action in {"edit", "move"}:
            why = f", because: {entry.reason}" if entry.reason else ""
            return f"{entry.actor} {act_text(entry)}{why}"
    return "Somebody changed it"


def _page(
    letter: DeadLetter,
    draft: Draft,
    *,
    base: str = "",
    reason: str = "",
    changes: Changes | None = None,
    problems: dict[str, str] | None = None,
    theirs: str = "",
    query: str = "",
) -> EditPage:
    head = letter.head
    parts: tuple[Changed, ...] = ()
    problem = (problems or {}).get("other", "")
    seen = ""
    if changes is not None and not is_nothing(changes):
        after = changes.made_to(letter.message)
        parts = changed_parts(differences(letter.message, after), most=_CHANGES)
        seen = digest_of(changes, head.revision)
    can_edit = head.state in OPEN
    if not can_edit:
        problem = f"This letter is {head.state}: only open letters can be edited. Reopen it first."
    came = {"in": kept_search(query)}
    return EditPage(
        id=head.id,
        short=head.id[:SHORT],
        error=": ".join(part for part in (head.error_name, head.error_text[:200]) if part),
        state=head.state,
        can_edit=can_edit,
        size=len(letter.message.body),
        revision=head.revision,
        draft=with_blanks(draft),
        forms=tuple(_TITLES.items()),
        base=base or draft.base,
        seen=seen if can_edit else "",
        changes=parts,
        is_checked=changes is not None or bool(problems),
        problems=problems or {},
        problem=problem,
        theirs=theirs,
        reason=reason,
        paths={
            "letter": path_to("letters", head.id, **came),
            "edit": path_to("letters", head.id, "edit", **came),
            "changes": path_to("letters", head.id, "edit", "changes"),
            "replay": path_to("replays", "new", q=f"id:{head.id}"),
            "difference": path_to("letters", head.id, "compare", **{"with": "original"}),
        },
    )


async def _render(
    request: Request[Any, Any, Any], page: EditPage, *, status: int = 200
) -> Response[bytes]:
    about = About(
        title=f"Edit letter {page.short}",
        screen="letters",
        command=f"dlq edit {page.short}",
        api=f"/letters/{page.id}",
    )
    return await render_page(
        request, "letter/edit.html", page, about, status=status, headers=_NEVER_STORED
    )


routes: Final[list[Any]] = [show_edit, edit, show_changes]
