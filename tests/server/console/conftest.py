"""
The console over HTTP, as a browser without scripts sees it.

    async def test_reviewing(guarded, signed_in):
        await guarded.store.keep(make_letters(3, now=guarded.clock.now()))
        browser = await signed_in(Role.OPERATOR)
        page = await browser.get("/letters")
        said = await browser.submit(page.form(button="Review"), id=["…"])

`guarded` is the server context with access on, `context` the one with access off; both
have the clock `clock`, which stands still. `browser` is the local administrator.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.ports import Engine
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.settings import Settings
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine
from html_pages import Form, Page
from office.making import NOW
from server.conftest import context_of, token

HERE = Path(__file__).parent
QUICK = {"test_assets", "test_charts", "test_door", "test_shell", "test_templates"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a server for each page as slow; the default run has the others."""
    for item in items:
        if HERE in item.path.parents and item.path.stem not in QUICK:
            item.add_marker(pytest.mark.slow)


Client = AsyncTestClient[Litestar]
SAME_SITE = {"accept": "text/html", "sec-fetch-site": "same-origin"}


@dataclass(eq=False)
class Browser:
    """A browser without scripts; `part` and `hx=True` ask as the scripts of a page do."""

    client: Client
    last: Response | None = None

    @property
    def status(self) -> int:
        """The status of the last answer, after redirects."""
        assert self.last is not None
        return self.last.status_code

    @property
    def path(self) -> str:
        """Where the last answer was, after redirects."""
        assert self.last is not None
        return self.last.url.raw_path.decode()

    async def get(self, path: str, *, status: int = 200) -> Page:
        """Open a page; fail unless the answer has this status and is well-formed."""
        return self._read(await self.client.get(path, headers=SAME_SITE), status)

    async def part(self, path: str, *, status: int = 200, **headers: str) -> Page:
        """Load a part of a page, as a script does."""
        asked = {**SAME_SITE, "hx-request": "true", **headers}
        return self._read(await self.client.get(path, headers=asked), status)

    async def submit(
        self,
        form: Form,
        *,
        hx: bool = False,
        status: int = 200,
        without: tuple[str, ...] = (),
        **fields: str | list[str],
    ) -> Page:
        """Send a form with some fields changed; `without` leaves fields out."""
        sent: dict[str, Any] = {**form.values, **fields}
        for name in without:
            sent.pop(name, None)
        if form.method == "get":
            answer = await self.client.get(form.action, params=sent, headers=SAME_SITE)
            return self._read(answer, status)
        return await self.post(form.action, hx=hx, status=status, **sent)

    async def post(
        self, path: str, *, hx: bool = False, status: int = 200, **fields: str | list[str]
    ) -> Page:
        """Post fields as a form does; redirects are followed."""
        headers = {**SAME_SITE, "origin": str(self.client.base_url).rstrip("/")}
        if hx:
            headers["hx-request"] = "true"
        answer = await self.client.post(path, data=fields, headers=headers)
        return self._read(answer, status)

    async def csrf(self) -> str:
        """Return a CSRF token for forms that a test writes itself; empty with access off."""
        for form in (await self.get("/")).forms:
            if found := form.values.get("csrf"):
                return found[0]
        return ""

    def _read(self, answer: Response, status: int) -> Page:
        self.last = answer
        assert answer.status_code == status, f"{answer.url}: {answer.status_code} {answer.text}"
        page = Page(answer.text)
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert page.wrong == [], f"{answer.url}: {page.wrong}"
            twice = {one for one in page.ids if page.ids.count(one) > 1}
            assert not twice, f"{answer.url}: ids used twice: {twice}"
        return page


SignedIn = Callable[..., Awaitable[Browser]]


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands where letters of `make_letter` are three minutes old."""
    return FakeClock(NOW)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The office; override it with `memory://` or by a parameter."""
    return f"sqlite:///{tmp_path}/office.db"


@pytest.fixture
async def engine(url: str, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = await open_engine(url, clock=clock, dice=SeededDice())
    yield engine
    await engine.close()


@pytest.fixture
def context(engine: Engine, settings: Settings, clock: FakeClock) -> ServerContext:
    """A server context with access off."""
    return replace(context_of(engine, settings=settings), clock=clock)


@pytest.fixture
def guarded(engine: Engine, settings: Settings, clock: FakeClock) -> ServerContext:
    """A server context with access on."""
    made = replace(context_of(engine, settings=settings, guarded=True), clock=clock)
    assert made.access is not None, "the engine keeps no tokens"
    return made


@pytest.fixture
async def browser(context: ServerContext) -> AsyncIterator[Browser]:
    """The browser of the local administrator, with access off."""
    async with AsyncTestClient(
        build(context), base_url="http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        client.follow_redirects = True
        yield Browser(client)


@pytest.fixture
async def stranger(guarded: ServerContext) -> AsyncIterator[Browser]:
    """A browser that has not signed in."""
    async with AsyncExitStack() as stack:
        yield await _open(guarded, stack)


@pytest.fixture
async def signed_in(guarded: ServerContext) -> AsyncIterator[SignedIn]:
    """Return a function that opens a browser with a role, limited to some mailboxes."""
    async with AsyncExitStack() as stack:

        async def sign_in(role: Role, *sources: str, name: str = "") -> Browser:
            opened = await _open(guarded, stack)
            shown = await token(guarded, role, *sources, name=name or role.value)
            form = (await opened.get("/sign-in")).form(action="/sign-in")
            await opened.submit(form, token=shown)
            assert opened.path == "/"
            return opened

        yield sign_in


async def _open(context: ServerContext, stack: AsyncExitStack) -> Browser:
    client = AsyncTestClient(
        build(context), base_url="http://dlq.example", raise_server_exceptions=False
    )
    opened = await stack.enter_async_context(client)
    opened.follow_redirects = True
    return Browser(opened)
