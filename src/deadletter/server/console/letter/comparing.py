"""Two letters side by side: where their facts, headers and bodies differ."""

from typing import Annotated, Any, Final

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct, structs

from deadletter.core.access import Identity, Role
from deadletter.core.errors import NotFound
from deadletter.core.letter import DeadLetter
from deadletter.core.query.ast import All, Op, Term
from deadletter.core.query.fields import instant, literal
from deadletter.office.diff import differences
from deadletter.server.auth.guards import needs
from deadletter.server.console import words
from deadletter.server.console.bounds import shortened
from deadletter.server.console.pages import About, path_to, render_page
from deadletter.server.context import Here, ServerContext, Who
from deadletter.server.search import Id

from .differing import Changed, changed_parts
from .page import SHORT

ORIGINAL: Final = "original"
"""The name of a letter's own message, as it died."""
_FACT: Final = 300  # bytes of HTML


class Side(Struct, frozen=True, kw_only=True):
    """One of the two letters."""

    short: str
    path: str
    state: str
    error: str
    note: str = ""


class ComparedFact(Struct, frozen=True, kw_only=True):
    """One fact of both letters."""

    term: str
    one: str
    other: str
    differs: bool


class ComparePage(Struct, frozen=True, kw_only=True):
    """Two letters, what differs first."""

    one: Side
    other: Side | None  # None: there is nothing to compare with
    facts: tuple[ComparedFact, ...]
    alike: int  # facts that are the same
    parts: tuple[Changed, ...]
    wanted: str  # what was asked for, to correct it
    problem: str
    action: str
    swap: str


@get("/letters/{id:str}/compare", guards=[needs(Role.READER)], include_in_schema=False)
async def show_comparison(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    id: Id,
    with_: Annotated[str, QueryParameter(name="with", max_length=200)] = "",
) -> Response[bytes]:
    """Compare a letter with another one; by default with the next of its group."""
    one = await context.office.letters.get(id, sources=who.sources)
    other, problem = await _other(context, who, one, with_.strip())
    page = compare_letters(one, other, wanted=with_, problem=problem)
    about = About(
        title=f"Compare letter {one.id[:SHORT]}",
        screen="letters",
        command=f"dlq show {one.id[:SHORT]}",
        api=f"/letters/{one.id}/diff",
    )
    status = 404 if problem and with_ else 200
    return await render_page(request, "letter/compare.html", page, about, status=status)


async def _other(
    context: ServerContext, who: Identity, one: DeadLetter, wanted: str
) -> tuple[DeadLetter | None, str]:
    letters = context.office.letters
    if wanted == ORIGINAL:
        if one.original is None:
            return None, "This letter was not edited: there is nothing to compare it with."
        return structs.replace(one, message=one.original), ""
    if wanted:
        try:
            return await letters.get(wanted, sources=who.sources), ""
        except NotFound as error:
            return None, str(error)
    near = await _next_of_group(context, who, one)
    if near is None:
        return None, "No other letter of its group is here. Give the id of another letter."
    return near, ""


async def _next_of_group(
    context: ServerContext, who: Identity, one: DeadLetter
) -> DeadLetter | None:
    if not one.head.fingerprint:
        return None
    letters = context.office.letters
    group = Term("group", Op.IS, (literal(one.head.fingerprint),))
    until = Term("until", Op.IS, (instant(one.head.dead_at),))
    for node in (All((group, until)), group):
        page = await letters.search(node, limit=2, sources=who.sources)
        for head in page.heads:
            if head.id != one.id:
                return await letters.get(head.id, sources=who.sources)
    return None


def compare_letters(
    one: DeadLetter, other: DeadLetter | None, *, wanted: str = "", problem: str = ""
) -> ComparePage:
    """Return two letters as a page compares them; secrets are masked."""
    facts = () if other is None else _facts(one, other)
    is_original = other is not None and other.id == one.id
    found = () if other is None else differences(other.message, one.message)
    return ComparePage(
        one=_side(one, "as it is now" if is_original else ""),
        other=None if other is None else _side(other, "as it died" if is_original else ""),
        facts=tuple(fact for fact in facts if fact.differs),
        alike=sum(not fact.differs for fact in facts),
        parts=changed_parts(found),
        wanted="" if wanted == ORIGINAL else wanted,
        problem=problem,
        action=path_to("letters", one.id, "compare"),
        swap=""
        if other is None or is_original
        else path_to("letters", other.id, "compare", **{"with": one.id}),
    )


def _side(letter: DeadLetter, note: str) -> Side:
    head = letter.head
    return Side(
        short=head.id[:SHORT],
        path=path_to("letters", head.id),
        state=head.state,
        error=shortened(": ".join(p for p in (head.error_name, head.error_text) if p), _FACT),
        note=note,
    )


def _facts(one: DeadLetter, other: DeadLetter) -> tuple[ComparedFact, ...]:
    found = []
    for (term, left), (_, right) in zip(_values(one), _values(other), strict=True):
        if left or right:
            found.append(
                ComparedFact(
                    term=term,
                    one=shortened(left, _FACT) or "-",
                    other=shortened(right, _FACT) or "-",
                    differs=left != right,
                )
            )
    return tuple(found)


def _values(letter: DeadLetter) -> list[tuple[str, str]]:
    head, message = letter.head, letter.message
    return [
        ("state", head.state),
        ("error", head.error_name),
        ("text", head.error_text),
        ("kind", f"{head.trouble} {head.code}".strip()),
        ("reason", head.reason),
        ("mailbox", head.source),
        ("message", head.message_id),
        ("partition", head.partition),
        ("size", f"{words.number(len(message.body))} bytes"),
        ("attempts", str(head.attempts)),
        ("replays", str(head.replays)),
        ("handler", head.consumer),
        ("version", head.version),
        ("frame", letter.frame.partition("#")[0]),
        ("trace", head.trace_id or ""),
        ("sent", words.exact(message.sent_at)),
        ("died", words.exact(head.dead_at)),
    ]


routes: Final[list[Any]] = [show_comparison]
