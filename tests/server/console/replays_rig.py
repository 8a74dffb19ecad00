"""A browser without scripts for the screens of replays, and replays in each state."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import unquote

import pytest
from httpx import Response
from litestar import Litestar
from litestar.testing import AsyncTestClient
from msgspec import Struct, structs

from deadletter.core.access import Role
from deadletter.core.attempts import Attempt, append
from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Lineage
from deadletter.ports import QueueOptions, ReplaySettled
from deadletter.server.app import build
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import eventually
from office.making import NOW
from server.conftest import token

PLAN = {
    "how": "careful",
    "canary": "2",
    "ramp": "true",
    "key_order": "true",
    "shown": "true",
    "reason": "the bank is back",
}
"""The form that plans a careful replay."""


class Web(Struct, frozen=True):
    """A browser of one person."""

    client: AsyncTestClient[Litestar]
    context: ServerContext
    headers: dict[str, str]

    async def get(self, path: str, *, hx: bool = False, **params: Any) -> Response:
        """Open a page, or with `hx` ask for it as a script does."""
        asked = self.headers | ({"hx-request": "true"} if hx else {})
        return await self.client.get(path, params=params, headers=asked, follow_redirects=False)

    async def text(self, path: str, *, hx: bool = False, **params: Any) -> str:
        """Return a page that must be there."""
        answer = await self.get(path, hx=hx, **params)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def post(self, path: str, fields: dict[str, Any], *, hx: bool = False) -> Response:
        """Send a form."""
        sent = self.headers | {"origin": "http://127.0.0.1"}
        sent |= {"hx-request": "true"} if hx else {}
        return await self.client.post(
            path, data=fields or {"reason": ""}, headers=sent, follow_redirects=False
        )

    async def plan(self, query: str = "is:pending", **fields: Any) -> str:
        """Plan a replay, wait until it is judged, and return its path."""
        answer = await self.post("/replays", PLAN | {"q": query} | fields)
        assert answer.status_code == 303, answer.text
        path = unquote(answer.headers["location"])
        await self.judged(path)
        return path

    async def judged(self, path: str) -> Campaign:
        """Wait until the letters of a replay are judged."""

        async def look() -> bool:
            plan = (await self.status(path)).plan
            return plan is not None and plan.is_judged

        await eventually(look)
        return await self.status(path)

    async def status(self, path: str) -> Campaign:
        """Return the replay of a page."""
        return await self.context.office.replays.status(path.rpartition("/")[2])

    async def start(self, path: str, expect: int, **fields: Any) -> Response:
        """Start a replay with the form of its dialog."""
        verdicts = ["ready", "credentials", "ordered"]
        form = PLAN | {"send": verdicts, "expect": str(expect)} | fields
        return await self.post(f"{path}/start", form)

    async def sent(self, path: str, count: int) -> None:
        """Wait until that many copies were sent."""

        async def look() -> bool:
            counts = (await self.status(path)).counts
            return sum(counts.get(one, 0) for one in (Outcome.SENT, Outcome.CONFIRMED)) >= count

        await eventually(look)

    async def reaches(self, path: str, state: str) -> Campaign:
        """Wait until a replay is in a state."""

        async def look() -> bool:
            return (await self.status(path)).state == state

        await eventually(look)
        return await self.status(path)

    async def confirm(self, path: str) -> None:
        """Handle the copies that are on their way."""
        found = await self.context.office.replays.outcomes(
            path.rpartition("/")[2], only=[Outcome.SENT], limit=500
        )
        news = [
            ReplaySettled(one.letter_id, one.generation, Outcome.CONFIRMED) for one in found.items
        ]
        await self.context.store.settle_replays(news)

    async def fail(self, path: str, error: str, group: str) -> None:
        """Let the copies that are on their way die again of one error."""
        campaign = path.rpartition("/")[2]
        found = await self.context.office.replays.outcomes(campaign, only=[Outcome.SENT], limit=500)
        letters = await self.context.store.get([one.letter_id for one in found.items])
        await self.context.store.keep([_dead(one, campaign, error, group) for one in letters])


def _dead(letter: DeadLetter, campaign: str, error: str, group: str) -> DeadLetter:
    """Return a letter that failed again, as a worker keeps it."""
    attempt = Attempt(
        number=1, at=NOW, error_type=error, text="<b>again</b>", stack="at 7", generation=1
    )
    head = structs.replace(
        letter.head, error_type=error, error_text="<b>again</b>", fingerprint=group, dead_at=NOW
    )
    lineage = Lineage(letter_id=letter.id, generation=1, campaign=campaign)
    message = structs.replace(letter.message, lineage=lineage)
    return structs.replace(letter, head=head, message=message, history=append("", attempt))


WebAs = Callable[..., Awaitable[Web]]
HTML = {"accept": "text/html"}


@pytest.fixture
async def web(context: ServerContext) -> AsyncIterator[Web]:
    """The local administrator of a server with access off."""
    await context.engine.broker.create(QueueOptions(name="orders"))
    async with AsyncTestClient(build(context), base_url="http://127.0.0.1") as client:
        yield Web(client, context, HTML)


@pytest.fixture
async def web_as(guarded: ServerContext) -> AsyncIterator[WebAs]:
    """Return a function that returns the browser of a role, limited to sources."""
    await guarded.engine.broker.create(QueueOptions(name="orders"))
    async with AsyncExitStack() as stack:
        client = AsyncTestClient(build(guarded), base_url="http://127.0.0.1")
        client = await stack.enter_async_context(client)

        async def browser(role: Role, *sources: str, name: str = "") -> Web:
            shown = await token(guarded, role, *sources, name=name)
            return Web(client, guarded, HTML | {"authorization": f"Bearer {shown}"})

        yield browser
