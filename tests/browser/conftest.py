"""
The console in a real browser, on real servers with real workers.

Tests are skipped where there is no Chromium; where the variable CI is set they fail. All
of them share one browser and one event loop; each page is watched, see `watching`.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from browser.chromium import find_chromium, launch
from browser.places import Place
from browser.prepared import Office, Offices
from browser.processes import Serve
from browser.watching import Watch
from servers import Missing, PostgreSQL
from servers.fixtures import do_without

HERE = Path(__file__).parent
PATIENCE = 20_000.0  # milliseconds in which the page shows what is expected
Scheme: TypeAlias = Literal["light", "dark", "no-preference"]
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


@pytest.fixture(scope="session")
def offices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offices]:
    """Offices in some state, shared by tests that only read."""
    made = Offices(tmp_path_factory)
    yield made
    made.end()


@pytest_asyncio.fixture(loop_scope="session")
async def office(offices: Offices, request: pytest.FixtureRequest) -> Office:
    """The shared office in the state of an indirect parameter."""
    return await offices.get(request.param)


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
    await page.wait_for_load_state()


async def settled(page: Page) -> None:
    """Wait until the parts of a page have been loaded and drawn."""
    await expect(page.locator(".htmx-request")).to_have_count(0)
    await page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def watch_of(page: Page) -> Watch:
    """Return what watches a page."""
    watch = page.watch  # type: ignore[attr-defined]
    assert isinstance(watch, Watch)
    return watch


@pytest.fixture
def postgresql_url(postgresql_server: PostgreSQL) -> str:
    """A database of its own: the first server over an office prints the first token."""
    name = f"browser_{uuid4().hex}"

    async def create() -> None:
        connection = await asyncpg.connect(postgresql_server.url)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    with ThreadPoolExecutor(1) as pool:  # no loop runs there
        pool.submit(asyncio.run, create()).result()
    return urlunsplit(urlsplit(postgresql_server.url)._replace(path=f"/{name}"))
