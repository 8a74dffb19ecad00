"""
The console in a real browser, on real servers with real workers.

Tests are skipped where there is no Chromium; where the variable CI is set they fail. All
of them share one browser and one event loop; each page is watched, see `watching`.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from browser.chromium import find_chromium, launch
from browser.processes import Dlq, Serve, Work
from browser.watching import Watch
from deadletter import App
from servers import Missing, PostgreSQL
from servers.fixtures import do_without

HERE = Path(__file__).parent
PATIENCE = 10_000.0  # milliseconds in which the page shows what is expected
Scheme: TypeAlias = Literal["light", "dark", "no-preference"]
Role: TypeAlias = Literal["reader", "operator", "admin"]
expect.set_options(timeout=PATIENCE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, and let their coroutines share the loop of the browser."""
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser, one for all tests of a process."""
    try:
        find_chromium()
    except Missing as missing:
        do_without(missing)
    async with async_playwright() as playwright:
        browser = await launch(playwright)
        yield browser
        await browser.close()


@dataclass(eq=False)
class Place:
    """An office, its folder, and the processes that work on it."""

    folder: Path
    url: str
    running: list[Dlq] = field(default_factory=list)
    _server: Serve | None = None

    def serve(self, *words: str, access: str = "on", port: int = 0) -> Serve:
        """Start a server; the first one prints a token."""
        server = Serve(self.folder, self.url, *words, access=access, port=port)
        self.running.append(server)
        self._server = server
        return server

    @property
    def server(self) -> Serve:
        """The server that was started last."""
        assert self._server is not None, "no server was started"
        return self._server

    def work(self, version: str = "1.8.0", **environ: str) -> Work:
        """Start a worker of the shop."""
        worker = Work(self.folder, self.url, version=version, **environ)
        self.running.append(worker)
        return worker

    async def send(self, mailbox: str, bodies: list[Any]) -> None:
        """Send messages to the shop."""
        async with App(self.url) as app:
            await app.send_many(mailbox, bodies)

    async def token(self, role: Role, *sources: str, name: str = "") -> str:
        """Return a new token, made by the administrator of the first start."""
        async with self.api() as api:
            made = await api.post(
                "/tokens", json={"name": name or role, "role": role, "sources": sources}
            )
            assert made.status_code == 201, made.text
            return str(made.json()["token"])

    def api(self, token: str = "") -> httpx.AsyncClient:
        """Return a client of the API; by default the administrator of the first start."""
        given = token or (self.server.first_token if self.server.has_access else "")
        return self.server.client(given)

    async def died(self, count: int, query: str = "is:open") -> list[dict[str, Any]]:
        """Wait until this many letters are in the office, and return up to 200 of them."""
        found: list[dict[str, Any]] = []
        async with self.api() as api:
            for _ in range(600):
                answer = await api.get("/letters/count", params={"query": query})
                assert answer.status_code == 200, answer.text
                if answer.json()["count"] >= count:
                    listed = await api.get("/letters", params={"query": query, "limit": 200})
                    found = listed.json()["heads"]
                    break
                await asyncio.sleep(0.05)
        assert found or not count, f"fewer than {count} letters of {query!r} after 30 s"
        return found

    def end(self) -> None:
        """End all processes, the newest first."""
        for one in reversed(self.running):
            one.end()


@pytest.fixture
def office_url(tmp_path: Path) -> str:
    """The engine of a test; journeys override it."""
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def place(tmp_path: Path, office_url: str) -> Iterator[Place]:
    """A place without any process yet."""
    made = Place(tmp_path, office_url)
    yield made
    made.end()


@pytest.fixture
def desk(place: Place) -> Place:
    """A place with a server, access on."""
    place.serve()
    return place


Visit: TypeAlias = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="session")
async def visit(chromium: Browser) -> AsyncIterator[Visit]:
    """
    Return a function that opens a watched page of a server, signed in with a token.

    When the test is over, none of its pages may have broken a rule of `watching`.
    """
    opened: list[tuple[BrowserContext, Watch]] = []

    async def open_page(
        server: Serve,
        path: str = "/",
        *,
        token: str | None = None,
        width: int = 1280,
        height: int = 900,
        scheme: Scheme = "light",
        scripts: bool = True,
        **more: Any,
    ) -> Page:
        context = await chromium.new_context(
            base_url=server.url,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            java_script_enabled=scripts,
            timezone_id="UTC",
            locale="en-GB",
            **more,
        )
        context.set_default_timeout(PATIENCE)
        watch = Watch(server.url)
        await watch.attach(context)
        opened.append((context, watch))
        page = await context.new_page()
        page.watch = watch  # type: ignore[attr-defined]
        given = server.first_token if token is None and server.has_access else token
        if given:
            await sign_in(page, given, path)
        else:
            await page.goto(path)
        return page

    yield open_page
    for context, _ in opened:
        await context.close()
    for _, watch in opened:
        watch.check()


async def sign_in(page: Page, token: str, path: str = "/") -> None:
    """Sign in by the form, and come back to the page that was asked for."""
    await page.goto(path)
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_have_count(0)


def watch_of(page: Page) -> Watch:
    """Return what watches a page."""
    watch = page.watch  # type: ignore[attr-defined]
    assert isinstance(watch, Watch)
    return watch


@pytest.fixture
def postgresql_url(postgresql_server: PostgreSQL) -> str:
    """An office on PostgreSQL of its own."""
    return postgresql_server.url
