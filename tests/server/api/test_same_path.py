"""
What is not yours costs what is not there costs: the very same calls of the stores.

Timing follows from what is done. So the calls are compared, one by one and with what
they were asked, and not the clock, which would tell something else every time.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.ports import QueueOptions
from deadletter.queue_server.model import LeaseQueue
from deadletter.queue_server.routes import CALLS
from deadletter.server.api.openapi import describe
from deadletter.server.app import routes
from deadletter.server.context import ServerContext
from office.making import BY, make_letter
from server.api.conftest import Api, Caller
from server.auth.role_table import TABLE
from server.conftest import token

pytestmark = pytest.mark.slow

Heard = list[tuple[str, str]]
LETTERS = "/api/v1/letters/"
NODES = "/admin/dlq/"
APART = {
    ("PUT", "/api/v1/searches/{name}"),  # makes what is not there
    ("DELETE", "/api/v1/sessions/{id}"),  # see the tests of sessions
}
NAMED = sorted(
    route
    for route in TABLE
    if "{" in route[1] and route[1].startswith(("/api/", NODES)) and route not in APART
)
BULK = sorted(
    path
    for method, path in TABLE
    if method == "POST" and path.startswith(LETTERS) and "{" not in path
)
ON_QUEUES = sorted(
    name for name, call in CALLS.items() if "queue_name" in call.request.__struct_fields__
)
CALLER = "access.used"  # notes that a token was used, once an hour, whatever was asked
_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


@contextmanager
def listening() -> Iterator[Heard]:
    """Record the store calls of requests, without those of background loops."""
    heard: Heard = []
    before = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(before)


@pytest.fixture(autouse=True)
def overheard(guarded: ServerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record the calls of all stores."""
    stores = {
        "letters": guarded.store,
        "broker": guarded.engine.broker,
        "items": guarded.items,
        "access": guarded.access,
        "ledger": guarded.engine.ledger,
    }
    for label, store in stores.items():
        for name, method in inspect.getmembers(store, inspect.iscoroutinefunction):
            if not name.startswith("_"):
                monkeypatch.setattr(store, name, _overheard(f"{label}.{name}", method))


def _overheard(name: str, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def called(*args: Any, **options: Any) -> Any:
        heard = _heard.get()
        if heard is not None and name != CALLER:
            call = re.sub(r"now=datetime\.datetime\([^)]*\)", "now", repr((args, options)))
            heard.append((name, call))
        within = _heard.set(None)  # calls that a store makes of itself follow from this one
        try:
            return await method(*args, **options)
        finally:
            _heard.reset(within)

    return called


@pytest.fixture
async def theirs(guarded: ServerContext) -> dict[str, str]:
    """Return one object of each kind that the caller may not see, by path."""
    letter = make_letter(1)
    await guarded.store.keep([letter, make_letter(2, source="mails")])
    assert guarded.items is not None
    for name in ("orders", "mails"):
        await guarded.engine.broker.create(QueueOptions(name=name))
        queue = LeaseQueue(name=name, lease_timeout=1, expire_timeout=1)
        await guarded.items.create_queue(queue)
    replay = await guarded.office.replays.sender.start(f"id:{letter.id}", BY, rate=0.1)
    await guarded.office.searches.save("late-ones", "source:orders", BY)
    shown = await token(guarded, Role.ADMIN, name="boss")
    return {
        LETTERS: letter.id,
        "/api/v1/groups/": letter.head.fingerprint,
        "/api/v1/replays/": replay.id,
        "/api/v1/queues/": "orders",
        "/api/v1/intakes/": "orders-dead",  # limited callers see none
        "/api/v1/searches/": "late-ones",
        "/api/v1/tokens/": shown.split("_")[1],
        NODES: "orders",
    }


@pytest.fixture(scope="module")
def bodies() -> dict[tuple[str, str], Any]:
    """Return a valid request for each route."""
    return {
        (method.upper(), path): operation["requestBody"]["content"][kind]["example"]
        for path, methods in describe("1", routes())["paths"].items()
        for method, operation in methods.items()
        for kind in operation.get("requestBody", {}).get("content", ())
    }


def like(name: str) -> str:
    """Return a name of the same form that does not exist."""
    swapped = {"a": "b", "2": "3"}
    return name[:-1] + swapped.get(name[-1], "a" if name[-1].isalpha() else "2")


async def both(
    names: tuple[str, str], ask: Callable[[str], Awaitable[Any]]
) -> list[tuple[int, str, Heard]]:
    """Return the answer to each request, and the store calls made for it."""
    told = []
    for name in names:
        with listening() as heard:
            answer = await ask(name)
        done = [(call, asked.replace(name, "…")) for call, asked in heard]
        text = answer.text.replace(name, "…")
        told.append((answer.status_code, text, done))
    return told


def check(told: list[tuple[int, str, Heard]]) -> None:
    theirs, nobodys = told
    assert theirs == nobodys
    status, _, done = theirs
    assert status == 404
    assert [call for call, _ in done if call.startswith("access.")], "nobody listened"


@pytest.mark.parametrize("route", NAMED, ids=" ".join)
async def test_one_thing(
    guarded_api: Api,
    caller: Caller,
    theirs: dict[str, str],
    bodies: dict[tuple[str, str], Any],
    route: tuple[str, str],
) -> None:
    method, path = route
    own = await caller(Role.ADMIN, "mails", name="mailer")
    headers = own | ({"if-match": '"0"'} if method == "PATCH" else {})
    (name,) = (name for start, name in theirs.items() if path.startswith(start))
    # A search by age has another time in it every time.
    body = {} if path.startswith(NODES) else bodies.get(route)
    given = {} if body is None else {"json": body}
    if "/repro" in path:
        given["params"] = {"app": "shop:app"}
    start, _, end = path.replace("}", "{").split("{")

    async def ask(name: str) -> Any:
        return await guarded_api.request(method, start + name + end, headers=headers, **given)

    check(await both((name, like(name)), ask))


@pytest.mark.parametrize("path", BULK)
async def test_letters_among_many(
    guarded_api: Api, caller: Caller, theirs: dict[str, str], path: str
) -> None:
    own = await caller(Role.ADMIN, "mails", name="mailer")
    name = theirs[LETTERS]
    said = {"text": "seen"} if path.endswith("/notes") else {"reason": "why"}

    async def ask(name: str) -> Any:
        return await guarded_api.post(path, json={"ids": [name], **said}, headers=own)

    one, other = await both((name, like(name)), ask)

    assert one == other


@pytest.mark.parametrize("call", ON_QUEUES)
async def test_queues_that_are_leased_from(
    guarded_api: Api, caller: Caller, theirs: dict[str, str], call: str
) -> None:
    own = await caller(Role.ADMIN, "mails", name="mailer")

    async def ask(name: str) -> Any:
        return await guarded_api.post(f"/v1/{call}", json={"queue_name": name}, headers=own)

    check(await both((theirs["/api/v1/queues/"], "nobodys"), ask))


async def test_other_work_would_be_heard(
    guarded_api: Api, caller: Caller, theirs: dict[str, str]
) -> None:
    boss = await caller(Role.ADMIN, name="root")
    for path in (LETTERS, "/api/v1/groups/", "/api/v1/replays/", "/api/v1/queues/"):

        async def ask(name: str, path: str = path) -> Any:
            return await guarded_api.get(path + name, headers=boss)

        there, missing = await both((theirs[path], like(theirs[path])), ask)

        assert (there[0], missing[0]) == (200, 404)
        for *_, done in (there, missing):
            assert [call for call, _ in done if not call.startswith("access.")]
