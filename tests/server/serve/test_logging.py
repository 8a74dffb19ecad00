"""The access log: a line for every request, without secrets."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from deadletter.core.access import Identity, Role
from deadletter.server.server import AccessLog
from deadletter.testing.fakes import FakeClock
from server.serve.conftest import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]
TRACE = "0af7651916cd43dd8448eb211c80319c"


def requests(served: Served) -> list[Any]:
    lines = [json.loads(line) for line in served.out]
    return [line for line in lines if line["event"] == "request"]


def test_requests_are_lines_of_json_without_tokens(serve: Serve) -> None:
    served = serve("--json")
    token = served.token
    with served.client(token) as client:
        client.get(f"/api/v1/letters?limit=1&secret={token}")
        client.get("/api/v1/letters", headers={"traceparent": f"00-{TRACE}-{'1' * 16}-01"})
        client.get(f"/api/v1/{token}")
        client.get("/api/v1/%1b[31mred")
        client.post("/v1/queue.stats", json={"queue_name": "nothing"})
        client.get("/health/live")
    served.until(lambda: len(requests(served)) == 5)
    served.signal()
    assert served.ended() == 0

    in_url, traced, in_path, odd, on_the_wire = requests(served)
    assert on_the_wire["path"] == "/v1/queue.stats"
    assert on_the_wire["actor"] == "first-administrator"
    assert in_url["path"] == "/api/v1/letters"
    assert in_url["status"] == 400
    assert traced["trace_id"] == TRACE
    assert traced["actor"] == "first-administrator"
    assert traced["status"] == 200
    assert in_path["path"] == "(a token)"
    assert "\x1b" not in odd["path"]
    assert {"at", "level", "method", "seconds", "bytes", "client"} <= traced.keys()
    assert served.said.count(token) == 1  # where it was shown
    assert served.err == []


def test_a_quiet_server_says_where_it_listens_and_nothing_else(serve: Serve) -> None:
    served = serve("--quiet", "--access", "off")
    with served.client() as client:
        client.get("/api/v1/letters")
    served.signal()
    served.ended()

    assert len(served.out) == 1
    assert served.err == []


def test_lines_for_people_are_on_standard_error(serve: Serve) -> None:
    served = serve("--verbose", "--access", "off")
    with served.client() as client:
        client.get("/health/live")
    served.until(lambda: "path=/health/live" in served.said)

    assert "request" in served.err[0]


Lines = list[tuple[int, str, dict[str, Any]]]


@pytest.fixture
def lines() -> Lines:
    return []


async def ask(lines: Lines, app: Any, **scope: Any) -> None:
    def log(level: int, name: str, fields: Any) -> None:
        lines.append((level, name, dict(fields)))

    async def nothing(*_: Any) -> Any:
        return {}

    full = {"type": "http", "method": "GET", "path": "/x", "headers": [], "state": {}}
    await AccessLog(app, log, FakeClock())(full | scope, nothing, nothing)


async def test_a_client_that_hung_up_is_a_line_too(lines: Lines) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        scope["state"]["who"] = Identity(name="ann\n", role=Role.READER)

    await ask(lines, silent)

    ((level, name, fields),) = lines
    assert (level, name) == (logging.INFO, "request")
    assert fields["status"] == 499
    assert fields["actor"] == "ann\\n"


async def test_an_application_that_breaks_is_a_line_too(lines: Lines) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await ask(lines, broken)

    assert lines[0][0] == logging.ERROR
    assert lines[0][2]["status"] == 500


async def test_non_http_scopes_are_passed_on(lines: Lines) -> None:
    came = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        came.append(scope["type"])

    await ask(lines, app, type="lifespan")

    assert came == ["lifespan"]
    assert lines == []
