"""
Pages and parts: from a value to HTML.

A route loads one frozen value from the office and hands it to `render_page`, or, if the
browser wants only a part of the page, to `render_part`. Templates see it as `page`, and
the person who looks as `viewer`.
"""

import gzip
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from jinja2 import Environment
from litestar import Request, Response
from litestar.datastructures import Cookie
from msgspec import Struct

from deadletter.core.access import Identity, Role
from deadletter.core.errors import BackendError
from deadletter.core.text import spelled
from deadletter.server.auth.authenticator import LOCAL, Caller
from deadletter.server.auth.hosts import PAGES, POLICY
from deadletter.server.auth.masks import mask
from deadletter.server.context import ServerContext

from .assets import Assets, is_packed
from .badges import Badges, load_badges
from .errands import Errands
from .fresh import LASTS, Fresh
from .notices import Notice, Notices
from .screens import Screen, screens_for
from .undo_keys import Undoing

BEGAN: Final = "dlq_page_began"
"""Key in the state of a request: when it began."""
_HEADERS: Final = {
    POLICY: f"{PAGES}; require-trusted-types-for 'script'; trusted-types dlq",
    "referrer-policy": "same-origin",  # see ADR 45
    "vary": "accept, accept-encoding, hx-request",
}
_LARGE: Final = 1_024  # bytes from which a page is compressed
LONGEST: Final = 2_000
"""Characters of an address to come back to."""
_TAG: Final = "hx-ptag"
_TIMES: Final = re.compile(r"(<time\b[^>]*>)[^<]*")
_UNKNOWN: Final = Identity(name="", role=Role.READER)


class Console(Struct, frozen=True):
    """What all pages of one server share."""

    environment: Environment
    assets: Assets
    notices: Notices
    undoing: Undoing
    errands: Errands
    fresh: Fresh
    version: str


class Viewer(Struct, frozen=True, kw_only=True):
    """The person who looks at a page."""

    who: Identity
    csrf: str  # for the forms of this page; empty where none is needed
    guarded: bool  # whether access is on
    known: bool  # False on pages that are shown before signing in
    now: datetime
    session_ends: datetime | None = None

    def may(self, role: Literal["reader", "operator", "admin"]) -> bool:
        """Return whether the person has this role."""
        return self.known and self.who.may(Role(role))


class About(Struct, frozen=True, kw_only=True):
    """
    A page in words: its title, its screen, and how to get the same elsewhere.

    `command` is a whole `dlq` command, `api` a path below /api/v1, and `query` the search
    that the page shows.
    """

    title: str
    screen: str = ""
    command: str = ""
    api: str = ""
    query: str = ""


class Shell(Struct, frozen=True, kw_only=True):
    """Everything around the content of a page."""

    about: About
    sections: tuple[tuple[Screen, ...], ...]
    badges: Badges
    notice: Notice | None
    version: str
    digest: str
    office: str  # its URL without a password
    took: Callable[[], int]  # milliseconds so far

    @property
    def has_search(self) -> bool:
        """Return whether there is a screen that shows the letters of a search."""
        return any(screen.name == "letters" for section in self.sections for screen in section)

    @property
    def has_more(self) -> bool:
        """Return whether small screens hide some screens behind More."""
        return any(not screen.phone for section in self.sections for screen in section)


def note_start(request: Request[Any, Any, Any]) -> None:
    """Note when a page was asked for; its foot says how long it took."""
    clock = request.app.state.context.clock
    request.scope["state"][BEGAN] = clock.monotonic()


def viewer_of(request: Request[Any, Any, Any]) -> Viewer:
    """Return the person who looks, as far as the request tells."""
    context: ServerContext = request.app.state.context
    caller = request.scope.get("auth")
    if not isinstance(caller, Caller):
        is_local = context.access is None
        caller = Caller(LOCAL if is_local else _UNKNOWN)
        known = is_local
    else:
        known = True
    session = caller.session
    return Viewer(
        who=caller.who,
        csrf=mask(session.csrf) if session else "",
        guarded=context.access is not None,
        known=known,
        now=context.clock.now(),
        session_ends=session.expires_at if session else None,
    )


async def render_page(
    request: Request[Any, Any, Any],
    template: str,
    page: Struct,
    about: About,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    """Return a whole page with everything around it."""
    context: ServerContext = request.app.state.context
    viewer = viewer_of(request)
    try:
        badges = await load_badges(context, viewer.who)
    except BackendError:  # the page itself says what is wrong
        badges = Badges()
    return bare_page(
        request, template, page, about, viewer=viewer, badges=badges, status=status, headers=headers
    )


def bare_page(
    request: Request[Any, Any, Any],
    template: str,
    page: Struct,
    about: About,
    *,
    viewer: Viewer | None = None,
    badges: Badges | None = None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    """Return a page without asking the office for anything."""
    console: Console = request.app.state.console
    viewer = viewer or viewer_of(request)
    shell = Shell(
        about=about,
        sections=screens_for(viewer.who) if viewer.known else (),
        badges=badges or Badges(),
        notice=console.notices.take(_whom(request)) if viewer.known else None,
        version=console.version,
        digest=console.assets.digest,
        office=_office(request.app.state.context, viewer),
        took=_stopwatch(request),
    )
    html = console.environment.get_template(template).render(
        page=page, viewer=viewer, shell=shell, is_part=False
    )
    return _html(request, html, status, dict(headers or {}))


def render_part(
    request: Request[Any, Any, Any],
    template: str,
    page: Struct,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    """Return a part of a page; 304 if the browser has the same already."""
    viewer = viewer_of(request)
    return _part(request, _rendered(request, template, page, viewer), status, headers or {})


async def shared_part(
    request: Request[Any, Any, Any],
    template: str,
    key: Hashable,
    load: Callable[[], Awaitable[Struct]],
) -> Response[bytes]:
    """
    Return a part that is the same for all who have this key, made at most once a second.

    Such a part has no forms, and says the same to every role.
    """
    console: Console = request.app.state.console

    async def make() -> Rendered:
        return _rendered(request, template, await load(), viewer_of(request))

    lasts = LASTS if is_partial(request) else 0.0
    return _part(request, await console.fresh.get((template, key), make, lasts=lasts), 200, {})


class Rendered(Struct, frozen=True):
    """A part as HTML, also compressed, and its tag: whether a browser has it already."""

    raw: bytes
    packed: bytes  # empty where it is too small
    tag: str


def _rendered(
    request: Request[Any, Any, Any], template: str, page: Struct, viewer: Viewer
) -> Rendered:
    console: Console = request.app.state.console
    html = console.environment.get_template(template).render(page=page, viewer=viewer, is_part=True)
    raw = html.encode()
    return Rendered(raw, _packed(raw), _tag(html, viewer.csrf))


def _part(
    request: Request[Any, Any, Any], made: Rendered, status: int, headers: Mapping[str, str]
) -> Response[bytes]:
    if status == 200 and request.headers.get(_TAG) == made.tag:
        return Response(b"", status_code=304, headers={**_HEADERS, _TAG: made.tag})
    return _answer(request, made.raw, made.packed, status, {_TAG: made.tag, **headers})


def done(
    request: Request[Any, Any, Any], notice: Notice, *, to: str, anew: bool = False
) -> Response[bytes]:
    """
    Answer an act: say what was done.

    Scripts get the notice itself, and refresh what it is about. Without scripts, the
    browser goes to the page `to`, which shows the notice; with `anew` scripts go there, too.
    """
    if is_partial(request) and not anew:
        return render_part(request, "parts/notice.html", notice)
    console: Console = request.app.state.console
    console.notices.put(_whom(request), notice)
    if is_partial(request):
        return Response(b"", status_code=200, headers={**_HEADERS, "hx-redirect": to})
    return redirect(to)


def redirect(path: str, *, cookies: list[Cookie] | None = None) -> Response[bytes]:
    """Lead the browser to another page of this server, by GET."""
    return Response(
        b"", status_code=303, headers={**_HEADERS, "location": path}, cookies=cookies or []
    )


def lead(request: Request[Any, Any, Any], path: str) -> Response[bytes]:
    """Lead the browser to another page, also if a script asks for a part."""
    if is_partial(request):
        return Response(b"", status_code=200, headers={**_HEADERS, "hx-redirect": path})
    return redirect(path)


def telling(request: Request[Any, Any, Any]) -> Callable[[Notice], None]:
    """Return a function that keeps a notice for the next page of the person who asks."""
    console: Console = request.app.state.console
    whom = _whom(request)
    return lambda notice: console.notices.put(whom, notice)


def is_partial(request: Request[Any, Any, Any]) -> bool:
    """Return whether a script asks for a part of a page."""
    return request.headers.get("hx-request") == "true"


def path_to(*parts: str, **query: str) -> str:
    """Return a path of this server, with everything in it percent-encoded."""
    path = "/" + "/".join(_quoted(part) for part in parts)
    words = "&".join(f"{name}={_quoted(value)}" for name, value in query.items() if value)
    return f"{path}?{words}" if words else path


def _quoted(text: str) -> str:
    return quote(spelled(text), safe="")  # searches find lone surrogates spelled out


def own_path(shown: str) -> str:
    """Return a path of this server to go to; the overview for everything else."""
    is_path = shown.startswith("/") and not shown.startswith(("//", "/\\"))
    if not is_path or not shown.isprintable() or not shown.isascii() or len(shown) > LONGEST:
        return "/"
    if "\\" in shown or " " in shown:
        return "/"
    found = urlsplit(shown)
    if found.scheme or found.netloc or found.path.startswith(("/sign-", "/api/", "/static/")):
        return "/"
    return shown


def page_before(request: Request[Any, Any, Any]) -> str:
    """Return the page that a form was on; the overview if the browser does not say."""
    _, _, rest = request.headers.get("referer", "").partition("://")
    return own_path("/" + rest.partition("/")[2])


def _whom(request: Request[Any, Any, Any]) -> str:
    caller = request.scope.get("auth")
    if not isinstance(caller, Caller):
        return ""
    return caller.session.hash if caller.session else caller.who.principal


def _office(context: ServerContext, viewer: Viewer) -> str:
    return context.home if viewer.known and not viewer.who.sources else ""


def _stopwatch(request: Request[Any, Any, Any]) -> Callable[[], int]:
    clock = request.app.state.context.clock
    began = request.scope["state"].get(BEGAN, clock.monotonic())
    return lambda: round((clock.monotonic() - began) * 1_000)


def _tag(html: str, csrf: str) -> str:
    """Return a digest of a part; the age of things and the mask of forms do not count."""
    still = _TIMES.sub(r"\1", html.replace(csrf, "") if csrf else html)
    return blake2b(still.encode(), digest_size=12).hexdigest()


def _html(
    request: Request[Any, Any, Any], html: str, status: int, headers: dict[str, str]
) -> Response[bytes]:
    raw = html.encode()
    return _answer(request, raw, _packed(raw) if is_packed(request) else b"", status, headers)


def _answer(
    request: Request[Any, Any, Any],
    raw: bytes,
    packed: bytes,
    status: int,
    headers: Mapping[str, str],
) -> Response[bytes]:
    given = {**_HEADERS, "dlq-console": request.app.state.console.assets.digest, **headers}
    # The length of a compressed page would tell something about the secrets on it.
    is_secret = "no-transform" in given.get("cache-control", "")
    if packed and not is_secret and is_packed(request):
        raw, given["content-encoding"] = packed, "gzip"
    return Response(raw, status_code=status, media_type="text/html", headers=given)


def _packed(raw: bytes) -> bytes:
    return gzip.compress(raw, 5, mtime=0) if len(raw) > _LARGE else b""
