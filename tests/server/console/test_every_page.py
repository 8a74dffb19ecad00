"""
Every page of the console, and the main acts, over every engine that keeps letters.

The routes are those that the console has: one with parameters fails until it is named here.
"""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest
from litestar.testing import AsyncTestClient

from client.serving import served
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.wiring.engines import open_engine
from engines import mongodb_rig, postgresql_time
from html_pages import Page
from office.making import make_letter
from server.conftest import context_of
from server.console.conftest import Browser
from server.console.groups_rig import BY, HOSTILE, stand
from server.console.mailbox_rig import furnish
from server.console.replays_rig import PLAN
from server.console.test_attacks import PAGES
from server.console.test_lent_page import lend
from servers.fixtures import needing_mongodb, needing_postgresql

MOST: Final = 400  # addresses of one walk
_PARAMETERS: Final = re.compile(r"\{\w+:(\w+)\}")
ELSEWHERE: Final = {
    "/letters/{id:str}/repair-offer": "is there after an edit",
    "/repairs/{key:str}": "is there after a repair was planned",
    "": "files and the API",
    "/letters/sheet": "a file",
    "/replays/{name:str}/sheet": "a file",
    "/sign-in/again": "needs access to be on",
    "/letters/{id:str}/contents/revealed": "leads back",
    "/letters/{id:str}/older": "leads to another letter",
    "/letters/{id:str}/newer": "leads to another letter",
    "/sign-in": "leads to the overview",
    "/sign-in/start": "needs a provider of identities",
    "/sign-in/callback": "needs a provider of identities",
    "/errands/{key:str}": "is there while an act on many letters goes on",
    "/intake/{name:str}/dialog": "needs an intake",
    "/tokens/dialog": "needs access to be on",
    "/tokens/{id:str}/revoke/dialog": "needs access to be on",
    "/sessions": "needs access to be on",
    "/sessions/{id:str}/end/dialog": "needs access to be on",
}
"""Routes that show no page of their own with access off, and why."""


Office = tuple[Browser, ServerContext]


@pytest.fixture(params=["memory", "sqlite", needing_postgresql(), needing_mongodb()])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the office is; of servers, their URL."""
    kind: str = request.param
    if kind in {"postgresql", "mongodb"}:
        return str(request.getfixturevalue(f"{kind}_server").url)
    return "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/office.db"


@pytest.fixture
async def office(place: str) -> AsyncIterator[Office]:
    """A browser of a server with access off, and the office behind it."""
    async with AsyncExitStack() as stack:
        url = place
        if place.startswith("postgresql"):
            url = await stack.enter_async_context(postgresql_time.a_database(place))
        elif place.startswith("mongodb"):
            url = await mongodb_rig.emptied(place)
        engine = await open_engine(url)
        stack.push_async_callback(engine.close)
        context = context_of(engine)
        client: httpx.AsyncClient
        if place == "memory://":
            client = AsyncTestClient(build(context), base_url="http://127.0.0.1")
        else:
            server = stack.enter_context(served(url))
            client = httpx.AsyncClient(base_url=server.url, timeout=30)
        await stack.enter_async_context(client)
        client.follow_redirects = True
        yield Browser(cast("Any", client)), context


async def keep(context: ServerContext, group: str, first: int, **fields: Any) -> list[str]:
    """Keep three letters of a group, and return their ids."""
    now = context.clock.now()
    made = [
        make_letter(n, fingerprint=group, now=now, died=timedelta(minutes=n), **fields)
        for n in range(first, first + 3)
    ]
    await context.store.keep(made)
    return [one.id for one in made]


def has_mailboxes(context: ServerContext) -> bool:
    return context.items is not None


async def addresses(browser: Browser, context: ServerContext) -> dict[str, list[str]]:
    """Furnish an office, and return addresses for each route."""
    ids = await keep(context, "2-a", 1, error_text=HOSTILE, version="1.8")
    ids += await keep(context, "2-b", 11, source="mails")
    await stand(context.store, "2-b", "resolved", version="1.9", note=HOSTILE)
    await context.office.letters.review(ids[:1], BY)
    found = {
        "/": ["/", "/?by=source"],
        "/badges": ["/badges"],
        "/groups": ["/groups", "/groups?status=all", "/groups?text=err", "/groups?source=mails"],
        "/groups/{fp:str}": ["/groups/2-a", "/groups/2-b"],
        "/groups/dialog": ["/groups/dialog?act=merge&id=2-a&id=2-b"],
        "/groups/{fp:str}/dialog": [
            f"/groups/2-a/dialog?act={act}"
            for act in ("resolve", "snooze", "assign", "mute", "merge", "split")
        ],
        "/letters": [
            f"/letters?q={query}"
            for query in ("", "is:open", "error:nosuch", "order", "version:1.8")
        ],
        "/letters/dialog": [f"/letters/dialog?verb=review&q=&id={ids[1]}"],
        "/search/suggest": ["/search/suggest?q=error:&at=6", "/search/suggest?q=ver&at=3"],
        "/help/search": ["/help/search"],
        "/palette": ["/palette?q=2-a"],
        "/letters/{id:str}": [f"/letters/{ids[0]}", f"/letters/{ids[4]}"],
        "/letters/{id:str}/repro": [f"/letters/{ids[1]}/repro"],
        "/letters/{id:str}/edit": [f"/letters/{ids[1]}/edit"],
        "/letters/{id:str}/compare": [f"/letters/{ids[1]}/compare?with={ids[2]}"],
        "/replays": ["/replays"],
        "/replays/new": ["/replays/new?q=group:2-a"],
        "/queues": ["/queues"],
        "/queue/dialog": ["/queue/dialog?act=create"],
        "/lent": ["/lent"],
        "/intake": ["/intake"],
        "/searches/dialog": ["/searches/dialog?q=is:open"],
        "/repairs/new": ["/repairs/new?q=is:open"],
        "/access": ["/access"],
        "/system": ["/system", *(f"/system?part={part}" for part in ("health", "verify"))],
        "/system/checks": ["/system/checks"],
        "/system/retention": ["/system/retention"],
        "/retention/dialog": ["/retention/dialog"],
        "/audit": ["/audit", "/audit?action=review"],
        "/report": ["/report", "/report?since=8h"],
    }
    for verb in ("review", "close", "reopen", "discard", "restore", "purge"):
        found[f"/letters/{{id:str}}/{verb}/dialog"] = [f"/letters/{ids[1]}/{verb}/dialog"]
    if has_mailboxes(context):
        await furnish(context)
        await lend(context)
        found["/queues/{name:path}"] = ["/queues/orders", "/queues/mails"]
        found["/lent-queue/dialog"] = ["/lent-queue/dialog?act=create"]
        found["/lent/{name:path}"] = ["/lent/jobs", "/lent/jobs-dead"]
        plan: dict[str, Any] = {**PLAN, "q": "is:pending"}
        await browser.post("/replays", **plan)
        found["/replays/{name:str}"] = [browser.path]
        found["/replays/{name:str}/ask/{act:str}"] = [f"{browser.path}/ask/cancel"]
    return found


async def test_every_page_answers(office: Office) -> None:
    browser, context = office
    known = await addresses(browser, context)
    todo = [one for route in PAGES for one in known.get(route, [])]
    seen: dict[str, Page] = {}
    while todo and len(seen) < MOST:
        path = without_query(todo.pop(0))
        if path in seen or _route(path) in ELSEWHERE:
            continue
        seen[path] = page = await browser.get(path)
        todo += [link for link in page.links if link.startswith("/")]
        for part in parts_of(page):
            if part not in seen:
                seen[part] = await browser.part(part)

    if has_mailboxes(context):
        assert {*PAGES} <= {*map(_route, seen)} | ELSEWHERE.keys()
    else:
        assert "Lent queues are off" in seen["/lent"].main.text
        assert "does not count deaths over time" in seen["/"].main.text


async def test_the_main_acts_are_done_and_undone(office: Office) -> None:
    browser, context = office
    ids = await keep(context, "2-a", 1)

    async def state() -> str:
        return str((await context.office.letters.head(ids[0])).state)

    for verb, after in (("review", "reviewed"), ("close", "closed"), ("reopen", "pending")):
        dialog = await browser.get(f"/letters/{ids[0]}/{verb}/dialog")
        await browser.submit(dialog.form(action=f"/letters/{ids[0]}/{verb}"), reason="why not")
        assert await state() == after
    page = await browser.get(f"/letters/dialog?verb=discard&q=&id={ids[0]}")
    page = await browser.submit(page.form(action="/letters/discard"), reason="no")
    assert await state() == "discarded"
    await browser.submit(page.form(button="Undo"))
    assert await state() == "pending"
    page = await browser.get("/groups/2-a")
    page = await browser.submit(page.form(button="Acknowledge"))
    await browser.submit(page.form(button="Undo"))
    page = await browser.get(f"/letters/{ids[1]}/purge/dialog")
    purge = page.form(action=f"/letters/{ids[1]}/purge")
    await browser.submit(purge, reason="GDPR", typed=ids[1][:6])
    assert len(await context.store.get(ids)) == 2
    actions = [one.action for one in await context.store.latest_audit(limit=50)]
    assert actions == ["purge", "group", "group", *(["move"] * 5)]


def parts_of(page: Page) -> list[str]:
    """Return the parts of a page; buttons and fields would send more with theirs."""
    found = [one.get("hx-get") for one in (*page.all("div"), *page.all("section"))]
    return [path for path in found if path.startswith("/")]


def without_query(path: str) -> str:
    """Return the address of a letter without the way it is shown: there are too many."""
    return path.partition("?")[0] if _route(path) == "/letters/{id:str}" else path


def _route(path: str) -> str:
    """Return the route that answers an address; the most exact one."""
    bare = path.partition("?")[0]
    for route in sorted(PAGES, key=lambda one: (one.count("{"), one)):
        if re.fullmatch(_PARAMETERS.sub(_pattern, route), bare):
            return route
    return ""


def _pattern(found: re.Match[str]) -> str:
    return ".+" if found[1] == "path" else "[^/]+"
