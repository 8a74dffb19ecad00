"""The list of letters: the values that its page and its parts show."""

import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import QueryError
from deadletter.core.letter import LetterHead, State
from deadletter.core.query import All, Node, Not, Op, Term, instant, is_costly, literal, parse, show
from deadletter.core.text import many
from deadletter.office.letter_search import counted_by
from deadletter.office.letters_protocol import LetterCount
from deadletter.office.triage.facets import COUNTED, count_facets
from deadletter.office.verbs import VERBS
from deadletter.ports import Page
from deadletter.server.console import words
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext
from deadletter.server.search import Searching

from .list_queries import (
    Chip,
    Mistake,
    chips,
    list_path,
    mistake_in,
    narrowed,
    top_terms,
    understand,
)
from .saved_row import SavedRow, load_saved

PAGE: Final = 50  # letters
CHEAP: Final = 2
DEAR: Final = 15
LONGEST_TEXT: Final = 300  # characters of an error in a row
_DEEPEST: Final = 20  # pages before this one that the address remembers
_MOST_TERMS: Final = 5  # counted alone, where all of them together find nothing
_MOST_VALUES: Final = 8  # of one facet


class Row(Struct, frozen=True, kw_only=True):
    """One letter; `head` is None if it was purged since the page was made."""

    id: str
    path: str
    head: LetterHead | None = None
    is_gone: bool = False  # it no longer belongs to the search
    error: str = ""
    text: str = ""


class Rows(Struct, frozen=True, kw_only=True):
    """The rows of a page, which never move, and how many letters have died since."""

    rows: tuple[Row, ...]
    url: str  # of the part
    newer_count: str = ""  # "12 new letters"; empty: none
    newer_path: str = ""


class LetterList(Struct, frozen=True, kw_only=True):
    """Everything that the list of letters shows."""

    query: str
    headline: str
    saved: SavedRow
    count: "CountPart | None" = None
    chips: tuple[Chip, ...] = ()
    mistake: Mistake | None = None
    rows: Rows | None = None
    looked: str = ""  # the search stopped before it was through
    newest: str = ""
    newer: str = ""
    older: str = ""
    go_on: str = ""
    count_url: str = ""
    facets_url: str = ""
    alone_url: str = ""
    replay_path: str = ""
    sheet_path: str = ""
    verbs: tuple["VerbButton", ...] = ()  # for letters that nobody has decided about
    more_verbs: tuple["VerbButton", ...] = ()
    is_first: bool = True
    is_costly: bool = False  # counts and values come on request only
    has_letters: bool = True  # any at all, of mailboxes that this person sees
    facets: "FacetList | None" = None  # on pages that were asked for them


class VerbButton(Struct, frozen=True):
    """The button of a verb; readers see it, and cannot use it."""

    name: str
    role: Role
    key: str = ""


class CountPart(Struct, frozen=True):
    """The headline of a list with the number of its letters."""

    headline: str
    url: str = ""  # to count again; empty: not by itself
    every: int = CHEAP  # seconds between two counts


class FacetLine(Struct, frozen=True, kw_only=True):
    """A value of a field: the letters that have it, and the searches with and without it."""

    value: str
    count: int
    share: str
    only: str = ""  # paths; empty: the value is masked
    without: str = ""
    is_chosen: bool = False


class FacetBox(Struct, frozen=True, kw_only=True):
    """The values of one field."""

    field: str
    lines: tuple[FacetLine, ...]
    others: int


class FacetList(Struct, frozen=True, kw_only=True):
    """The values of the newest letters of a search, by field."""

    looked_at: int
    boxes: tuple[FacetBox, ...]


class Alone(Struct, frozen=True, kw_only=True):
    """What one term of a search would find without the others."""

    text: str
    path: str
    letters: str


class AlonePart(Struct, frozen=True):
    """The terms of a search that finds nothing."""

    terms: tuple[Alone, ...]


class ListRequest(Struct, frozen=True, kw_only=True):
    """The address of one page of a list: the search, the place in it, and the way there."""

    query: str
    after: str | None = None
    via: tuple[str, ...] = ()  # the places of the pages before, the nearest last


class Ahead(Struct, frozen=True, kw_only=True):
    """A page that is shown before its search has found anything, because that takes long."""

    chips: tuple[Chip, ...]
    url: str  # of the part with what is found
    plain: str  # the same as a page, for browsers without scripts


def ahead_of(who: Identity, asked: ListRequest) -> Ahead | None:
    """Return the page that is shown ahead of a costly search; None for other searches."""
    try:
        node = understand(asked.query, masked=not who.may(Role.OPERATOR))
    except QueryError:
        return None
    if not is_costly(node):
        return None
    place = {"after": asked.after or "", "via": ",".join(asked.via)}
    return Ahead(
        chips=chips(node),
        url=list_path(asked.query, part="found", **place),
        plain=list_path(asked.query, show="found", **place),
    )


async def load_list(
    context: ServerContext,
    who: Identity,
    searching: Searching,
    asked: ListRequest,
    *,
    with_facets: bool = False,
) -> LetterList:
    """Return one page of the letters that a search finds, or what is wrong with the search."""
    query = asked.query
    saved = await load_saved(context, who, query)
    counts = await context.store.counts()
    seen = {name: states for name, states in counts.items() if who.sees(name)}
    has_letters = any(sum(states.values()) for states in seen.values())
    try:
        node = understand(query, masked=not who.may(Role.OPERATOR))
        page = await searching.search(node, limit=PAGE, after=asked.after)
    except QueryError as error:
        if asked.after and not error.query:  # the place is wrong, not the search
            raise
        mistake = mistake_in(query, error)
        headline = "This search is not understood"
        return LetterList(
            query=query,
            headline=headline,
            saved=saved,
            count=CountPart(headline),
            mistake=mistake,
            has_letters=has_letters,
        )
    known = counted_by(node, counts, who.sources)
    if known is None and asked.after is None and page.after is None:
        known = len(page.heads)
    headline = "Letters" if known is None else headline_of(query, LetterCount(known))
    count = None
    if known is not None:
        count = CountPart(headline, "" if is_costly(node) else list_path(query, part="count"))
    older = _older(asked, page.after)
    return LetterList(
        query=query,
        headline=headline,
        saved=saved,
        count=count,
        chips=chips(node) if show(node) else (),
        rows=_rows(query, page.heads, asked, context.clock.now()),
        looked=_looked(page),
        newest=list_path(query) if asked.after else "",
        newer=_newer(asked),
        older="" if page.letters is not None else older,
        go_on=older if page.letters is not None else "",
        count_url=list_path(query, part="count"),
        facets_url=list_path(query, part="facets"),
        alone_url=list_path(query, part="alone") if len(top_terms(node)) > 1 else "",
        replay_path=path_to("replays", "new", q=query or "*"),
        sheet_path=path_to("letters", "sheet", q=query or "*"),
        verbs=verb_buttons(who, common=True),
        more_verbs=verb_buttons(who, common=False),
        is_first=asked.after is None,
        is_costly=is_costly(node),
        has_letters=has_letters,
        facets=await load_facets(who, searching, query) if with_facets else None,
    )


def verb_buttons(who: Identity, *, common: bool) -> tuple[VerbButton, ...]:
    """
    Return the buttons of verbs for letters that nobody has decided about, or of all others.

    What needs an administrator is shown to administrators only, and among the others.
    """
    found = []
    for verb in VERBS:
        is_common = State.PENDING in verb.old and verb.role is Role.OPERATOR
        if is_common is common and (verb.role is not Role.ADMIN or who.may(Role.ADMIN)):
            found.append(VerbButton(verb.name, verb.role, verb.key))
    return tuple(found)


def headline_of(query: str, count: LetterCount) -> str:
    """Return the number of letters in words."""
    if query == "is:open":
        return "No open letters" if not count.letters else _many(count, "open letter")
    return "No letters" if not count.letters else _many(count, "letter")


def _many(count: LetterCount, what: str) -> str:
    if count.is_all:
        return many(count.letters, what)
    return f"{words.number(count.letters, at_least=True)} {what}s"


def _looked(page: Page) -> str:
    """Return how far a search got that stopped before it had found a whole page."""
    if page.letters is None or page.back_to is None:
        return ""
    of = f" of {page.letters:,}" if page.letters > page.looked_at else ""
    return f"Looked at {page.looked_at:,}{of} letters, back to {words.exact(page.back_to)}."


def _newer(asked: ListRequest) -> str:
    if not asked.after or not asked.via:
        return ""
    *before, place = asked.via
    if place == "-":  # the first page
        return list_path(asked.query)
    return list_path(asked.query, after=place, via=",".join(before))


def _older(asked: ListRequest, after: str | None) -> str:
    if after is None:
        return ""
    via = (*asked.via, asked.after or "-")[-_DEEPEST:]
    return list_path(asked.query, after=after, via=",".join(via))


def _rows(query: str, heads: Sequence[LetterHead], asked: ListRequest, now: datetime) -> Rows:
    top = ""
    if asked.after is None:
        top = instant(heads[0].dead_at if heads else now)
    rows = tuple(row_of(head, query) for head in heads)
    return Rows(rows=rows, url=_rows_url(query, [head.id for head in heads], top))


def _rows_url(query: str, ids: Iterable[str], top: str) -> str:
    return list_path(query, part="rows", ids=",".join(ids), top=top)


def row_of(head: LetterHead, query: str, *, is_gone: bool = False) -> Row:
    """Return a letter as a row of a list."""
    return Row(
        id=head.id,
        path=path_to("letters", head.id, **{"in": query}),
        head=head,
        is_gone=is_gone,
        error=head.error_name or head.reason.value,
        text=(head.error_text or head.reason_text)[:LONGEST_TEXT],
    )


async def load_rows(
    who: Identity, searching: Searching, query: str, ids: tuple[str, ...], top: str
) -> Rows:
    """
    Return the same rows as before, with what has become of their letters.

    Letters that no longer belong to the search keep their place. `top` is the time of the
    newest death that the page shows, or empty for pages that are not the first.
    """
    node = understand(query, masked=not who.may(Role.OPERATOR))
    there: dict[str, LetterHead] = {}
    belong: frozenset[str] = frozenset(ids)
    if ids:
        named = Term("id", Op.IS, tuple(map(literal, ids)))
        page = await searching.search(named, limit=len(ids), after=None)
        there = {head.id: head for head in page.heads}
        if not is_costly(node):
            fitting = await searching.search(All((node, named)), limit=len(ids), after=None)
            belong = frozenset(head.id for head in fitting.heads)
    rows = []
    for id_ in ids:
        head = there.get(id_)
        if head is None:
            rows.append(Row(id=id_, path=path_to("letters", id_), is_gone=True))
        else:
            rows.append(row_of(head, query, is_gone=id_ not in belong))
    newer = ""
    if top and not is_costly(node):
        newer = await _newer_count(searching, node, top, ids)
    return Rows(
        rows=tuple(rows),
        url=_rows_url(query, ids, top),
        newer_count=newer,
        newer_path=list_path(query),
    )


async def _newer_count(searching: Searching, node: Node, top: str, shown: tuple[str, ...]) -> str:
    """Return how many letters of a search have died since, in words; nothing for none."""
    since = Term("dead", Op.GE, (top,))  # several letters may have died in one instant
    others = (Not(Term("id", Op.IS, tuple(map(literal, shown)))),) if shown else ()
    count = await searching.count(All((node, since, *others)))
    return _many(count, "new letter") if count.letters else ""


async def load_count(
    context: ServerContext, who: Identity, searching: Searching, query: str
) -> CountPart:
    """Return the number of letters of a search; dear counts are not repeated as often."""
    node = understand(query, masked=not who.may(Role.OPERATOR))
    headline = headline_of(query, await searching.count(node))
    if is_costly(node):
        return CountPart(headline)
    is_cheap = counted_by(node, await context.store.counts(), who.sources) is not None
    return CountPart(headline, list_path(query, part="count"), CHEAP if is_cheap else DEAR)


async def load_facets(who: Identity, searching: Searching, query: str) -> FacetList:
    """Return the values of the newest letters of a search, with links that narrow it."""
    node = understand(query, masked=not who.may(Role.OPERATOR))
    page = await searching.search(node, limit=COUNTED, after=None)
    found = count_facets(page.heads)
    chosen = {show(term) for term in top_terms(node)}
    boxes = []
    for facet in found.facets:
        lines = tuple(
            FacetLine(
                value=one.value,
                count=one.count,
                share=words.share(one.count, found.looked_at),
                only=list_path(narrowed(query, node, one.query)) if one.query else "",
                without=list_path(narrowed(query, node, f"!{one.query}")) if one.query else "",
                is_chosen=_tidy(one.query) in chosen if one.query else False,
            )
            for one in facet.values[:_MOST_VALUES]
        )
        others = facet.others + sum(one.count for one in facet.values[_MOST_VALUES:])
        boxes.append(FacetBox(field=facet.field, lines=lines, others=others))
    return FacetList(looked_at=found.looked_at, boxes=tuple(boxes))


def _tidy(term: str) -> str:
    return show(parse(term))


async def load_alone(who: Identity, searching: Searching, query: str) -> AlonePart:
    """Return what the terms of a search find one by one, so that the narrow one shows."""
    node = understand(query, masked=not who.may(Role.OPERATOR))
    found = []
    for term in top_terms(node)[:_MOST_TERMS]:
        if is_costly(term):
            continue
        text = show(term)
        count = await searching.count(term)
        found.append(Alone(text=text, path=list_path(text), letters=_many(count, "letter")))
    return AlonePart(tuple(found))


def command_of(query: str) -> str:
    """Return the command that lists the same letters."""
    return f"dlq list {shlex.quote(query)}" if query else "dlq list"
