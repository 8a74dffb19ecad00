"""The page of a letter: what happened to this one?"""

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import NotFound
from deadletter.core.letter import (
    OPEN,
    AuditEntry,
    DeadLetter,
    LetterHead,
    ReviewOrder,
    State,
    sources_of,
)
from deadletter.core.text import attempts_of, many
from deadletter.intake.dialects import origin_of
from deadletter.office.audit import AuditFilter
from deadletter.office.diff import differences
from deadletter.office.triage.facets import Nearby
from deadletter.office.triage.layout import Form
from deadletter.office.verbs import CLOSE, DISCARD, PURGE, REOPEN, RESTORE, REVIEW, VERBS, Verb
from deadletter.office.view import tell
from deadletter.server.auth.guards import needs
from deadletter.server.console import words
from deadletter.server.console.bounds import shortened
from deadletter.server.console.pages import (
    LONGEST,
    About,
    bare_page,
    path_to,
    render_page,
    render_part,
)
from deadletter.server.console.stacks import Trace, trace_of
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Id, Searches

from .contents import Body, HeaderPage, body_of, headers_of
from .differing import Changed, changed_parts
from .story import StoryLines, story_of

SHORT: Final = 10  # characters of an id that are enough to tell letters apart
_LARGEST: Final = 2**31  # bytes of a body
_FACT: Final = 300  # bytes of HTML of one fact
_CHANGES: Final = 20_000  # ...of what an edit has changed
_FULL: Final = re.compile(r"[a-z2-7]{24}")
_DELETIONS: Final = frozenset({PURGE.name, "expire"})

InSearch: TypeAlias = Annotated[
    str,
    QueryParameter(
        name="in", max_length=LONGEST, description="The search that the letter was found by."
    ),
]


class ActLink(Struct, frozen=True, kw_only=True):
    """Something that can be done with this letter now."""

    verb: str
    title: str
    about: str
    path: str
    role: str
    icon: str = ""
    kind: str = ""
    key: str = ""


class Near(Struct, frozen=True, kw_only=True):
    """Letters that share something with this one."""

    title: str
    count: str
    newer: int
    path: str


class AttemptRow(Struct, frozen=True, kw_only=True):
    """One attempt, and the path that shows its stack."""

    title: str
    error: str
    path: str
    is_shown: bool
    has_stack: bool


class Origin(Struct, frozen=True, kw_only=True):
    """The place of others where a letter was found."""

    place: str
    facts: tuple[tuple[str, str], ...]


class LetterPage(Struct, frozen=True, kw_only=True):
    """Everything that the page of a letter shows."""

    head: LetterHead
    short: str
    error: str
    text: str
    sentence: str
    like: str  # how many letters of its group there are besides
    facts: tuple[tuple[str, str], ...]
    acts: tuple[ActLink, ...]
    is_open: bool
    can_replay: bool
    body: Body
    headers: HeaderPage
    is_revealed: bool
    is_original: bool
    edited: tuple[Changed, ...]
    is_edited: bool
    trace: Trace
    trace_title: str
    attempts: tuple[AttemptRow, ...]
    story: StoryLines
    near: tuple[Near, ...]
    origin: Origin | None
    query: str  # the search it came from
    paths: dict[str, str]


class GonePage(Struct, frozen=True, kw_only=True):
    """A letter that was deleted, from the audit."""

    id: str
    entry: AuditEntry
    is_purged: bool


class View(Struct, frozen=True, kw_only=True):
    """What of a letter to show: a slice of its body, some headers, one stack."""

    form: Form = Form.PRETTY
    start: int = 0
    headers: int = 0
    attempt: int = 0
    original: bool = False
    reveal: bool = False
    query: str = ""


@get("/letters/{id:str}", guards=[needs(Role.READER)], include_in_schema=False)
async def show_letter(
    *,
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    searching: Searches,
    id: Id,
    form: Annotated[Form, QueryParameter()] = Form.PRETTY,
    start: Annotated[int, QueryParameter(ge=0, le=_LARGEST)] = 0,
    first: Annotated[int, QueryParameter(ge=0, le=_LARGEST)] = 0,
    attempt: Annotated[int, QueryParameter(ge=0, le=1_000)] = 0,
    original: Annotated[bool, QueryParameter()] = False,
    in_: InSearch = "",
    part: Annotated[
        Literal["head", "contents", "body", "lines", "headers", "trace", "story", "near"] | None,
        QueryParameter(),
    ] = None,
) -> Response[bytes]:
    """Show a letter, or one part of its page."""
    view = View(
        form=form,
        start=start,
        headers=first,
        attempt=attempt,
        original=original,
        query=kept_search(in_),
    )
    try:
        letter = await context.office.letters.get(id, sources=who.sources)
    except NotFound:
        gone = await find_gone(context, who, id)
        if gone is None:
            raise
        about = About(title=f"Letter {gone.id[:SHORT]}", screen="letters")
        return bare_page(request, "letter/gone.html", gone, about, status=410)
    loading = load_letter(context, who, letter, view)
    page = await (searching.look(loading) if start else loading)
    if part is not None:
        return render_part(request, f"letter/{part}.html", page)
    return await render_page(request, "letter/page.html", page, about_letter(page))


def about_letter(page: LetterPage) -> About:
    """Return the title and the twins of the page of a letter."""
    return About(
        title=f"Letter {page.short}",
        screen="letters",
        command=f"dlq show {page.head.id}",
        api=f"/letters/{page.head.id}",
        query=page.query,
    )


async def load_letter(
    context: ServerContext, who: Identity, letter: DeadLetter, view: View
) -> LetterPage:
    """Return what this person sees of a letter; revealing it was recorded before."""
    head = letter.head
    nearby, story = await asyncio.gather(
        context.office.triage.nearby_head(head, sources=who.sources), tell(context.store, letter)
    )
    attempts = letter.story()
    message = letter.as_it_died if view.original else letter.message
    shown = _shown(len(attempts), [bool(one.stack) for one in attempts], view.attempt)
    changes = differences(letter.as_it_died, letter.message) if letter.original else ()
    name, text = _error(head)
    order = context.store.review_order
    return LetterPage(
        head=head,
        short=head.id[:SHORT],
        error=name,
        text=text,
        sentence=_sentence(head),
        like=_like(nearby),
        facts=tuple(_facts(letter)),
        acts=tuple(_acts(head, order)),
        is_open=head.state in OPEN,
        can_replay=head.state in sources_of(State.REPLAYING, order),
        body=body_of(message.body, view.start, form=view.form, reveal=view.reveal),
        headers=headers_of(message, view.headers, reveal=view.reveal),
        is_revealed=view.reveal,
        is_original=view.original and letter.original is not None,
        edited=changed_parts(changes, most=_CHANGES),
        is_edited=letter.original is not None,
        trace=trace_of(attempts[shown - 1].stack if shown else ""),
        trace_title=_attempt_title(attempts[shown - 1].number) if shown else "",
        attempts=tuple(
            AttemptRow(
                title=_attempt_title(one.number) if one.outcome != "cut" else "…",
                error=shortened(f"{_last(one.error_type)}: {one.text}".strip(": "), _FACT),
                path=_path(head, view, attempt=str(place)) + "#stack",
                is_shown=place == shown,
                has_stack=bool(one.stack),
            )
            for place, one in enumerate(attempts, 1)
        ),
        story=story_of(story.moments, attempts, more=story.left_out),
        near=tuple(_near(nearby)),
        origin=_origin(letter),
        query=view.query,
        paths=_paths(head, view),
    )


def _shown(count: int, have_stack: Sequence[bool], wanted: int) -> int:
    """Return the attempt whose stack is shown, from 1: the wanted one, or the last with one."""
    if 1 <= wanted <= count:
        return wanted
    return next((at for at in range(count, 0, -1) if have_stack[at - 1]), 0)


def _attempt_title(number: int) -> str:
    return f"attempt {number}" if number else "the last attempt"


def _last(error_type: str) -> str:
    return error_type.rpartition(".")[2]


def _error(head: LetterHead) -> tuple[str, str]:
    name = shortened(head.error_name, 200)
    text = shortened(head.error_text, 600)
    if not name and not text:
        return shortened(head.reason_text or head.reason, 600), ""
    return name, text


def kept_search(text: str) -> str:
    """Return a search for the links of a page; nothing if it would fill them."""
    return text if len(quote(text)) <= LONGEST else ""


def _sentence(head: LetterHead) -> str:
    by = ", ".join(
        part for part in (head.consumer, head.version and f"version {head.version}") if part
    )
    told = f"in {head.source} {attempts_of(head.attempts)}" + (f" ({by})" if by else "")
    return shortened(told, 600)


def _like(nearby: Sequence[Nearby]) -> str:
    group = next((near for near in nearby if near.field == "group"), None)
    if group is None or not group.letters:
        return ""
    return f"{'' if group.is_all else '≥ '}{many(group.letters, 'other letter')} like it"


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    head, message = letter.head, letter.message
    kind = " · ".join(part for part in (head.trouble, head.code, head.reason) if part)
    frame = "" if letter.frame == head.consumer else letter.frame.partition("#")[0]
    replayed = many(head.replays, "time") if head.replays else ""
    found = [
        ("id", head.id),
        ("kind", kind),
        ("why it died", head.reason_text),
        ("message", message.id),
        ("key", message.key or ""),
        ("partition", head.partition),
        ("position", letter.position or ""),
        ("size", f"{words.number(head.size)} bytes"),
        ("content type", message.content_type or ""),
        ("idempotency key", message.idempotency_key or ""),
        ("expires", words.exact(message.expires_at) if message.expires_at else ""),
        ("reply to", message.reply_to or ""),
        ("trace", head.trace_id or ""),
        ("handler", head.consumer),
        ("version", head.version),
        ("frame", frame),
        ("first failed", words.exact(head.first_failed_at)),
        ("died", words.exact(head.dead_at)),
        ("replayed", replayed),
        ("conflict", "its message id was reused with another body" * head.conflict),
        ("also sent to", letter.route or ""),
        ("revision", str(head.revision)),
    ]
    return [(term, shortened(text, _FACT)) for term, text in found if text]


_LOOKS: Final = {
    REVIEW.name: ("circle-check", "", "w"),
    CLOSE.name: ("archive", "", ""),
    REOPEN.name: ("rotate-ccw", "", ""),
    DISCARD.name: ("trash-2", "", "d"),
    RESTORE.name: ("rotate-ccw", "", ""),
    PURGE.name: ("eraser", "harm", ""),
}


def fits(verb: Verb, state: State, order: ReviewOrder) -> bool:
    """Return whether a letter in this state can be changed by a verb."""
    if verb.new is not None and state not in sources_of(verb.new, order):
        return False
    return state in verb.old or (state is State.REPLAYING and verb.takes_unconfirmed)


def _acts(head: LetterHead, order: ReviewOrder) -> list[ActLink]:
    found = []
    for verb in VERBS:
        if not fits(verb, head.state, order):
            continue
        icon, kind, key = _LOOKS.get(verb.name, ("", "", ""))
        is_at_once = verb.name in AT_ONCE and head.state in verb.old
        path = ["letters", head.id, verb.name, *([] if is_at_once else ["dialog"])]
        found.append(
            ActLink(
                verb=verb.name,
                title=verb.name.capitalize() + ("" if is_at_once else "…"),
                about=verb.line,
                path=path_to(*path),
                role=verb.role,
                icon=icon,
                kind=kind,
                key=key,
            )
        )
    return found


AT_ONCE: Final = frozenset({REVIEW.name, RESTORE.name})
"""Verbs without a dialog: they do no harm, and can be undone."""

_NEAR: Final = {
    "key": "same key",
    "trace": "same trace",
    "message": "same message id",
    "group": "same group",
}


def _near(nearby: Sequence[Nearby]) -> list[Near]:
    return [
        Near(
            title=_NEAR.get(one.field, one.field),
            count=words.number(one.letters, at_least=not one.is_all),
            newer=one.newer,
            path=path_to("letters", q=one.query),
        )
        for one in nearby
        if one.letters
    ]


def _origin(letter: DeadLetter) -> Origin | None:
    origin = origin_of(letter.message)
    if origin is None:
        return None
    facts = [("dialect", origin.dialect or "unknown"), ("its headers name", origin.claim)]
    facts += list(origin.said.items())[:20]
    return Origin(
        place=shortened(origin.place, _FACT),
        facts=tuple((shortened(k, 100), shortened(v, _FACT)) for k, v in facts if v),
    )


def _path(head: LetterHead, view: View, **query: str) -> str:
    given = {"original": "true" if view.original else "", "in": view.query, **query}
    return path_to("letters", head.id, **given)


def _more(path: str, query: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}{query}"


def _paths(head: LetterHead, view: View) -> dict[str, str]:
    id_, came = head.id, {"in": view.query}
    body = {"form": view.form.value}
    return {
        "letter": path_to("letters", id_, **came),
        "body": _path(head, view),
        "form": _path(head, view, **body),
        "other": path_to("letters", id_, **came, original="" if view.original else "true"),
        "part": _more(path_to("letters", id_, **came), "part="),
        "forms": _more(_path(head, view), "form="),
        "stack": _more(path_to("letters", id_, **came), "attempt="),
        "reveal": path_to("letters", id_, "contents", "revealed", **came),
        "edit": path_to("letters", id_, "edit", **came),
        "compare": path_to("letters", id_, "compare"),
        "original": path_to("letters", id_, "compare", **{"with": "original"}),
        "repro": path_to("letters", id_, "repro"),
        "repair": path_to("repairs", "new", **{"from": id_}),
        "same": path_to("letters", id_, "repair-offer"),
        "notes": path_to("letters", id_, "notes"),
        "replay": path_to("replays", "new", q=f"id:{id_}"),
        "group": path_to("groups", head.fingerprint) if head.fingerprint else "",
        "mailbox": path_to("queues", head.source),
        "newer": path_to("letters", id_, "newer", **came),
        "older": path_to("letters", id_, "older", **came),
        "list": path_to("letters", q=view.query),
        "download_body": path_to("api", "v1", "letters", id_, "body"),
        "download_message": path_to("api", "v1", "letters", id_, "message"),
        "download_original": path_to("api", "v1", "letters", id_, "original"),
    }


async def find_gone(context: ServerContext, who: Identity, text: str) -> GonePage | None:
    """Return how a letter was deleted, for those who may see the whole audit."""
    name = text.strip().lower()
    if who.sources or not _FULL.fullmatch(name):
        return None
    for entry in await context.office.latest_audit(AuditFilter(target=name), limit=5):
        if entry.action in _DELETIONS:
            return GonePage(id=name, entry=entry, is_purged=entry.action == PURGE.name)
    return None


routes: Final[list[Any]] = [show_letter]
