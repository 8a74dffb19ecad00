"""A client whose server asks to retry, rejects requests or does not answer."""

import asyncio
import importlib
import sys
from collections.abc import Iterator

import httpx
import pytest

from deadletter.client import Client, QueueClient
from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    NotFound,
    QueryError,
    Refused,
    Unavailable,
)
from deadletter.queue_server.model import NewItem

URL = "http://127.0.0.1:1"
Answer = httpx.Response | Exception


class Script:
    """A fake server with scripted answers, which records its requests."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[httpx.Request] = []
        self._answers: Iterator[Answer] = iter(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self)


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the sleeps instead of sleeping."""
    naps: list[float] = []
    sleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        await sleep(0)

    monkeypatch.setattr("deadletter.client.connection.asyncio.sleep", nap)
    return naps


def problem(status: int, kind: str, detail: str = "no", **more: object) -> Answer:
    said = {"type": f"urn:deadletter:problem:{kind}", "detail": detail, **more}
    return httpx.Response(status, json=said)


def later(seconds: str) -> Answer:
    return httpx.Response(503, headers={"retry-after": seconds})


MOVED = httpx.Response(200, json={"asked": 1, "moved": 1})


async def test_temporary_failures_are_retried_after_the_requested_time(naps: list[float]) -> None:
    script = Script(later("7"), later("3"), MOVED)

    async with Client(URL, transport=script.transport) as client:
        moved = await client.letters.review(["a"])

    assert moved.moved == 1
    assert naps == [7.0, 3.0]


async def test_every_attempt_carries_the_same_key_and_every_request_another() -> None:
    script = Script(later("0"), httpx.ReadError("cut"), MOVED, httpx.Response(200, json={}))

    async with Client(URL, transport=script.transport) as client:
        await client.letters.review(["a"])
        await client.letters.close(["a"])

    keys = [request.headers["idempotency-key"] for request in script.asked]
    assert len(keys) == 4
    assert len(set(keys)) == 2
    assert len(set(keys[:3])) == 1


async def test_requests_in_progress_are_waited_for() -> None:
    """The connection was lost while the server still works on the request."""
    script = Script(httpx.ReadError("broke off"), problem(409, "in-progress"), MOVED)

    async with Client(URL, transport=script.transport) as client:
        moved = await client.letters.review(["a"])

    assert moved.moved == 1
    assert len({request.headers["idempotency-key"] for request in script.asked}) == 1


async def test_the_client_gives_up_after_some_attempts_with_the_servers_message() -> None:
    script = Script(*[problem(503, "unavailable", "out of reach")] * 3)

    async with Client(URL, transport=script.transport, attempts=3) as client:
        with pytest.raises(Unavailable, match="out of reach"):
            await client.stats()

    assert len(script.asked) == 3


async def test_a_server_that_asks_for_hours_is_not_waited_for_that_long(naps: list[float]) -> None:
    script = Script(later("86400"), MOVED)

    async with Client(URL, transport=script.transport) as client:
        await client.letters.review(["a"])

    assert max(naps) < 60


async def test_a_server_that_is_not_there_is_told_by_its_address() -> None:
    async with Client(URL, attempts=2) as client:
        with pytest.raises(Unavailable, match=URL):
            await client.stats()


@pytest.mark.parametrize(
    ("answer", "tries"),
    [
        (httpx.ReadError("cut"), 1),  # the items may be there
        (httpx.ReadTimeout("silence"), 1),
        (httpx.Response(504), 1),
        (httpx.ConnectError("refused"), 4),  # they cannot
        (httpx.Response(454, json={"code": 454, "message": "shutting down"}), 4),
    ],
)
async def test_a_produce_is_sent_again_only_where_nothing_can_have_happened(
    answer: Answer, tries: int
) -> None:
    script = Script(*[answer] * 4)

    async with QueueClient(URL, transport=script.transport) as queue:
        with pytest.raises(Unavailable):
            await queue.produce("orders", [NewItem(b"1")])

    assert len(script.asked) == tries


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (problem(400, "refused", "say which"), ConfigError, "say which"),
        (problem(404, "not-found", "there is none"), NotFound, "there is none"),
        (problem(409, "conflict", "changed"), Conflict, "changed"),
        (problem(412, "changed", "at revision 3"), Conflict, "at revision 3"),
        (problem(502, "engine", "will again"), Refused, "will again"),
        (problem(401, "unauthorized", "who?"), Refused, "who?"),
        (problem(403, "forbidden", "needs admin"), Refused, "needs admin"),
        (
            problem(400, "bad-request", "", errors=[{"key": "limit", "message": "≥ 1"}]),
            ConfigError,
            "limit: ≥ 1",
        ),
        (httpx.Response(404, text="<html>no</html>"), ConfigError, "/api/v1/stats"),
        (problem(404, "not-found", "Not Found"), ConfigError, "was not found"),
        (httpx.Response(500, text="<html>oops</html>"), Refused, "500"),
        (httpx.Response(302, headers={"location": "http://evil"}), Refused, "302"),
        (httpx.Response(200, text="<html>hello</html>"), Refused, "is malformed"),
        (httpx.Response(418), Refused, "418"),
    ],
)
async def test_a_refusal_is_an_error_of_ours_and_not_repeated(
    answer: Answer, error: type[DeadLetterError], text: str
) -> None:
    script = Script(answer)

    async with Client(URL, transport=script.transport) as client:
        with pytest.raises(error) as raised:
            await client.stats()

    assert text in str(raised.value)
    assert len(script.asked) == 1


async def test_a_search_that_cannot_be_read_points_at_the_token() -> None:
    answer = problem(400, "query", "what is that?", query="is:x", at=3)

    async with Client(URL, transport=Script(answer).transport) as client:
        with pytest.raises(QueryError) as raised:
            await client.letters.search("is:x")

    assert (raised.value.query, raised.value.at) == ("is:x", 3)


async def test_the_token_goes_with_every_request_and_nowhere_else() -> None:
    script = Script(MOVED, httpx.Response(302, headers={"location": "http://evil/"}))

    async with Client(URL, token="dlq_x", transport=script.transport) as client:
        await client.letters.review(["a"])
        with pytest.raises(Refused):
            await client.stats()

    assert {one.headers["authorization"] for one in script.asked} == {"Bearer dlq_x"}
    assert {one.url.host for one in script.asked} == {"127.0.0.1"}
    assert "dlq_x" not in repr(client)


@pytest.mark.parametrize("token", ["dlq_a\nSECRET", "dlq_SECRET ", "ünïSECRET"])
def test_a_token_that_cannot_be_is_refused_and_never_shown(token: str) -> None:
    for kind in (Client, QueueClient):
        with pytest.raises(ConfigError, match="one word of ASCII") as raised:
            kind(URL, token=token)

        assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["", "localhost:8418", "ftp://a", "http://", "http://me:secret@host"]
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Client(url)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["a/b", "ü ?#", "%2e"])
async def test_names_cannot_lead_elsewhere(name: str) -> None:
    script = Script(problem(404, "not-found"))

    async with Client(f"{URL}/base/", transport=script.transport) as client:
        with pytest.raises(NotFound):
            await client.queues.get(name)

    path = script.asked[0].url.raw_path.decode()
    assert path.startswith("/base/api/v1/queues/")
    assert path.count("/") == 5


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_names_that_would_lead_elsewhere_are_nobodys(name: str) -> None:
    async with Client(URL, transport=Script().transport) as client:
        with pytest.raises(NotFound):
            await client.queues.delete(name)


def test_without_httpx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("deadletter.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx", None)

    with pytest.raises(ConfigError, match=r"deadletter\[client\]"):
        importlib.import_module("deadletter.client")


async def test_a_lease_that_finds_nothing_says_so_when_its_time_is_over() -> None:
    nothing = httpx.Response(454, json={"code": 454, "message": "no items"})
    script = Script(*[nothing] * 10_000)  # as nobody really waits between them

    async with QueueClient(URL, transport=script.transport) as queue:
        lent = await queue.lease("orders", wait=0.02)

    assert lent.items == ()


async def test_a_lease_is_asked_again_for_the_time_that_is_left(naps: list[float]) -> None:
    stopping = httpx.Response(454, json={"code": 454, "message": "shutting down"})
    items = {"queue_name": "orders", "partition": 0, "items": [{"id": "a"}]}
    script = Script(stopping, stopping, httpx.Response(200, json=items))

    async with QueueClient(URL, transport=script.transport) as queue:
        lent = await queue.lease("orders", wait=900)

    assert lent.ids == ("a",)
    assert naps == [0.2, 0.2]
