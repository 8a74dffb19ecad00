"""The palette: go to anything by a few characters of it."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from litestar import Request, Response, get
from litestar.params import QueryParameter
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.query import Op, Term
from deadletter.core.redact import redact
from deadletter.core.text import cut, many
from deadletter.server.auth.guards import needs
from deadletter.server.console.pages import About, path_to, render_page, render_part
from deadletter.server.console.screens import screens_for
from deadletter.server.context import Here, ServerContext, Who

from .list_queries import list_path
from .saved_row import link_to

_LETTERS: Final = 5
_GROUPS: Final = 200  # looked at
_MOST: Final = 6  # of one kind
_LONGEST: Final = 200
_is_letter: Final = re.compile(r"[a-z2-7]{6,24}").fullmatch
_is_replay: Final = re.compile(r"[0-9a-f-]{6,36}").fullmatch


class Place(Struct, frozen=True, kw_only=True):
    """Something to go to."""

    text: str
    path: str
    icon: str
    about: str = ""


class Kind(Struct, frozen=True):
    """Places of one kind."""

    title: str
    places: tuple[Place, ...]


class Palette(Struct, frozen=True, kw_only=True):
    """What the palette found for a text."""

    typed: str
    kinds: tuple[Kind, ...]


@get("/palette", guards=[needs(Role.READER)], include_in_schema=False)
async def show_palette(
    request: Request[Any, Any, Any],
    context: Here,
    who: Who,
    q: Annotated[str, QueryParameter(max_length=_LONGEST)] = "",
    part: Annotated[Literal["dialog", "found"] | None, QueryParameter()] = None,
) -> Response[bytes]:
    """Show what a few characters may mean: screens, letters, groups, replays, mailboxes."""
    page = await load_palette(context, who, q.strip())
    if part is not None:
        return render_part(request, f"letters/parts/palette_{part}.html", page)
    about = About(title="Go to", query="")
    return await render_page(request, "letters/palette.html", page, about)


async def load_palette(context: ServerContext, who: Identity, typed: str) -> Palette:
    """Return the places that a text may mean."""
    wanted = typed.lower()
    kinds = [
        Kind("Screens", tuple(_screens(who, wanted))),
        Kind("Saved searches", await _saved(context, who, wanted)),
    ]
    if wanted:
        kinds += [
            Kind("Letters", await _letters(context, who, wanted)),
            Kind("Groups", await _groups(context, who, wanted)),
            Kind("Replays", await _replays(context, who, wanted)),
            Kind("Mailboxes", await _mailboxes(context, who, wanted)),
            Kind("Search", (_search(typed),)),
        ]
    return Palette(typed=typed, kinds=tuple(kind for kind in kinds if kind.places))


def _screens(who: Identity, wanted: str) -> Iterator[Place]:
    for section in screens_for(who):
        for screen in section:
            if wanted in screen.title.lower():
                about = f"g {screen.key}" if screen.key else ""
                yield Place(text=screen.title, path=screen.path, icon=screen.icon, about=about)
    if wanted in "how to search":
        yield Place(text="How to search", path="/help/search", icon="circle-help")


async def _saved(context: ServerContext, who: Identity, wanted: str) -> tuple[Place, ...]:
    links = [
        link_to(one)
        for one in await context.office.searches.list(who=who)
        if wanted in one.name.lower() or wanted in one.query.lower()
    ]
    return tuple(
        Place(text=link.name, path=link.path, icon="star", about=cut(link.query, 120))
        for link in links[:_MOST]
    )


async def _letters(context: ServerContext, who: Identity, wanted: str) -> tuple[Place, ...]:
    if not _is_letter(wanted):
        return ()
    named = Term("id", Op.IS, (f"{wanted}*",))
    page = await context.office.letters.search(named, limit=_LETTERS, sources=who.sources)
    return tuple(
        Place(
            text=f"{head.error_name or head.reason} in {head.source}",
            path=path_to("letters", head.id),
            icon="mail",
            about=f"{head.id[:10]} · {head.state}",
        )
        for head in page.heads
    )


async def _groups(context: ServerContext, who: Identity, wanted: str) -> tuple[Place, ...]:
    page = await context.office.groups.list(sources=who.sources, everything=True, limit=_GROUPS)
    found = [
        line
        for line in page.groups
        if any(wanted in text.lower() for text in (line.fingerprint, line.error_type, line.text))
    ]
    return tuple(
        Place(
            text=redact(cut(f"{line.error_type.rpartition('.')[2]} {line.text}", 120)),
            path=path_to("groups", line.fingerprint),
            icon="layers",
            about=f"{line.status} · {line.source} · {many(line.open, 'open letter')}",
        )
        for line in found[:_MOST]
    )


async def _replays(context: ServerContext, who: Identity, wanted: str) -> tuple[Place, ...]:
    if not _is_replay(wanted):
        return ()
    owner = who.principal if who.sources else None
    found = await context.store.campaigns(limit=_LETTERS, begins=wanted, owner=owner)
    return tuple(
        Place(
            text=redact(cut(one.query, 120)),
            path=path_to("replays", one.id),
            icon="send",
            about=f"{one.id[:8]} · {one.state}",
        )
        for one in found
    )


async def _mailboxes(context: ServerContext, who: Identity, wanted: str) -> tuple[Place, ...]:
    names = [
        name
        for name in sorted(await context.store.counts())
        if wanted in name.lower() and who.sees(name)
    ]
    return tuple(
        Place(text=name, path=path_to("queues", name), icon="inbox") for name in names[:_MOST]
    )


def _search(typed: str) -> Place:
    return Place(text=typed, path=list_path(typed), icon="search", about="search letters")


routes: Final[list[Any]] = [show_palette]
