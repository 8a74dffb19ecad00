"""Find every page and part that the console's routes and links lead to."""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urljoin, urlsplit

import httpx

from deadletter.server.console.routes import routes
from html_pages import Page

_NOT_PAGES: Final = ("/static/", "/api/", "/v1/", "/health", "/metrics", "/sign-")
_EACH: Final = 2  # addresses of one kind that are followed
_MOST: Final = 300  # requests of one crawl
ELSEWHERE: Final = {
    "/errands/{key}": "is there while an act on many letters goes on",
    "/groups/dialog": "opened for chosen rows",
    "/intake/{name}/dialog": "needs an intake",
    "/lent/{name}": "needs a lent queue",
    "/letters/dialog": "opened for chosen rows",
    "/letters/{id}/restore/dialog": "needs a letter that was discarded",
    "/letters/{id}/review/dialog": "needs a letter that nobody has reviewed",
    "/letters/sheet": "a file",
    "/letters/{id}/contents/revealed": "leads back",
    "/letters/{id}/newer": "leads to another letter",
    "/letters/{id}/older": "leads to another letter",
    "/letters/{id}/repair-offer": "is there after an edit",
    "/repairs/{key}": "is there after a repair was planned",
    "/replays/{name}/sheet": "a file",
    "/tokens/{id}/revoke/dialog": "needs access to be on",
    "/sessions": "needs access to be on",
    "/sessions/{id}/end/dialog": "needs access to be on",
    "/tokens/dialog": "needs access to be on",
}
"""Routes that no link leads to, and why."""

_PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(eq=False)
class Crawl:
    """What was found, by kind: the route and the names of its parameters."""

    pages: dict[str, list[str]] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def routes(self) -> set[str]:
        """The routes that were reached."""
        kinds = {*self.pages, *self.parts, *self.files}
        return {kind.partition("?")[0] for kind in kinds}

    @property
    def addresses(self) -> list[str]:
        """One address of each route, and of each route with one parameter."""
        kinds = sorted(kind for kind in self.pages if "&" not in kind)
        return [self.pages[kind][0] for kind in kinds]


def page_routes(method: str = "GET") -> list[str]:
    """Return the paths of all routes of the console, such as `/letters/{id}`."""
    found = set()
    for route in routes():
        if method in route.http_methods:
            found |= {_PARAMETER.sub(r"{\1}", path) for path in route.paths}
    return sorted(path for path in found if not path.startswith(_NOT_PAGES))


def kind_of(address: str) -> str:
    """Return the route of an address and the names of its parameters."""
    parts = urlsplit(address)
    names = sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)})
    part = [value for name, value in parse_qsl(parts.query) if name == "part"]
    shown = [f"part={part[0]}" if name == "part" and part else name for name in names]
    return _route_of(parts.path) + (f"?{'&'.join(shown)}" if shown else "")


def _route_of(path: str) -> str:
    found = [route for route in page_routes() if _matches(route, path)]
    plain = [route for route in found if "{" not in route]
    return (plain or sorted(found, key=lambda route: route.count("{")) or [path])[0]


def _matches(route: str, path: str) -> bool:
    pattern = "".join(
        "[^/]+" if piece.startswith("{") else re.escape(piece)
        for piece in re.split(r"(\{\w+\})", route)
    )
    return re.fullmatch(pattern, path) is not None


async def crawl(client: httpx.AsyncClient, token: str = "") -> Crawl:
    """
    Follow links and parts from the overview and from every screen, a few of each kind.

    The base URL of the client is that of the server.
    """
    found = Crawl()
    plain = [path for path in page_routes() if "{" not in path]
    todo = deque([("/", False), *((path, False) for path in plain)])
    headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    seen: set[tuple[str, bool]] = set()
    asked = 0
    while todo and asked < _MOST:
        address, is_part = todo.popleft()
        known = found.parts if is_part else found.pages
        kind = kind_of(address)
        if (address, is_part) in seen or len(known.get(kind, ())) >= _EACH:
            continue
        seen.add((address, is_part))
        asked += 1
        extra = {"hx-request": "true"} if is_part else {}
        answer = await client.get(
            address, headers={**headers, **extra}, follow_redirects=False, timeout=60
        )
        if answer.status_code in {302, 303, 307}:
            todo.append((answer.headers["location"], False))
            continue
        if answer.status_code != 200:
            # A screen that needs a parameter says so when it is asked for without one.
            if address not in plain or answer.status_code >= 500:
                found.problems.append(f"{address}: {answer.status_code} {_said(answer)}")
            continue
        if not answer.headers.get("content-type", "").startswith("text/html"):
            found.files.setdefault(kind, []).append(address)
            found.problems += _wrong_file(address, answer)
            continue
        is_whole = "<!doctype html>" in answer.text[:200]
        (found.pages if is_whole else found.parts).setdefault(kind, []).append(address)
        page = Page(answer.text)
        found.problems += _wrong_page(address, page, answer, is_whole=is_whole)
        todo += _leads(address, page)
    return found


def _said(answer: httpx.Response) -> str:
    """Return the problem of a page in its own words."""
    page = Page(answer.text)
    alerts = [one.text for one in page.all(role="alert") if one.text]
    return (alerts or [page.text])[0][:200]


def _leads(address: str, page: Page) -> list[tuple[str, bool]]:
    """Return where a page leads: links and forms that read, and parts that scripts load."""
    leads = [(link, False) for link in page.links]
    leads += [(one["hx-get"], True) for one in page.walk() if one.get("hx-get")]
    leads += [(form.action, False) for form in page.forms if form.method == "get" and form.action]
    own = []
    for link, is_part in leads:
        if link.startswith("#") or re.match(r"[a-z]+:", link):
            continue
        joined = urljoin(address, link).partition("#")[0]
        if not joined.startswith(_NOT_PAGES):
            own.append((joined, is_part))
    return own


def _wrong_page(address: str, page: Page, answer: httpx.Response, *, is_whole: bool) -> list[str]:
    wrong = [f"{address}: {one}" for one in page.wrong]
    wrong += [
        f"{address}: the id {one} is used twice"
        for one in sorted({one for one in page.ids if page.ids.count(one) > 1})
    ]
    if len(answer.content) > 300_000:
        wrong.append(f"{address}: {len(answer.content):,} bytes of HTML")
    if is_whole and len(page.all("h1")) != 1:
        wrong.append(f"{address}: {len(page.all('h1'))} headings of the first level")
    for link in page.links:
        if re.match(r"(?i)\s*(javascript|data|vbscript):", link) or link.startswith("//"):
            wrong.append(f"{address}: a link leads to {link[:100]}")
    return wrong


def _wrong_file(address: str, answer: httpx.Response) -> list[str]:
    kind = answer.headers.get("content-type", "")
    is_inert = kind.startswith(("application/octet-stream", "text/csv", "application/json"))
    attached = answer.headers.get("content-disposition", "").startswith("attachment")
    policy = "sandbox" in answer.headers.get("content-security-policy", "")
    if policy and (attached or is_inert or kind.startswith("text/plain")):
        return []
    return [f"{address}: a file of type {kind} that a browser might show"]
