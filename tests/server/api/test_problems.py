"""Problem documents of errors."""

import logging
from io import StringIO

import pytest
from litestar.exceptions import HTTPException

from deadletter.core.errors import (
    ConfigError,
    Conflict,
    DeadLetterError,
    Malformed,
    NotFound,
    QueryError,
    Refused,
    Unavailable,
)
from deadletter.server import problems
from deadletter.server.context import ServerContext
from deadletter.server.problems import problem_of
from server.api.conftest import Api


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (ConfigError("say more"), 400, "refused"),
        (QueryError("what?", query="x:", at=2), 400, "query"),
        (NotFound("gone"), 404, "not-found"),
        (Conflict("changed"), 409, "conflict"),
        (Refused("no such table"), 502, "engine"),
        (Unavailable("db.internal:5432 refused"), 503, "unavailable"),
        (Malformed("odd"), 400, "refused"),
        (HTTPException(status_code=415, detail="no"), 415, "unsupported-media-type"),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int, kind: str) -> None:
    problem, _ = problem_of(error)

    assert problem.status == status
    assert problem.type == f"urn:deadletter:problem:{kind}"


def test_engine_errors_are_logged_not_returned() -> None:
    for error in (Unavailable("db.internal:5432"), Refused("db.internal:5432")):
        problem, _ = problem_of(error)
        assert "db.internal" not in problem.detail


def test_a_store_out_of_reach_says_when_to_come_back() -> None:
    _, headers = problem_of(Unavailable("gone"))

    assert headers == {"retry-after": "5"}


def test_every_error_of_ours_is_told() -> None:
    for kind in DeadLetterError.__subclasses__():
        problem, _ = problem_of(kind("x"))
        assert problem.status < 500 or problem.status in {502, 503}


async def test_an_unforeseen_error_tells_nothing_but_where_to_look(
    api: Api, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = StringIO()
    log = logging.getLogger("problems of this test")
    log.addHandler(logging.StreamHandler(logged))
    monkeypatch.setattr(problems, "log", log)

    async def broken(*args: object, **options: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(context.office.letters, "search", broken)
    answer = await api.get("/api/v1/letters")

    assert answer.status_code == 500
    problem = answer.json()
    assert "hunter2" not in answer.text
    assert problem["id"] in logged.getvalue()


@pytest.mark.parametrize(
    ("method", "path", "status", "what"),
    [
        ("GET", "/api/v1/nothing", 404, "/api/openapi.json"),
        ("GET", "/nothing", 404, "/api/openapi.json"),
        ("DELETE", "/api/v1/letters", 405, "Allow"),
    ],
)
async def test_routes_that_are_not_there_are_problems_that_say_where_to_look(
    api: Api, method: str, path: str, status: int, what: str
) -> None:
    answer = await api.request(method, path)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert (status == 405) == ("allow" in answer.headers)
    assert what in answer.json()["detail"]
    assert (status == 404) == answer.json()["type"].endswith(":no-route")


async def test_a_field_that_is_wrong_is_named(api: Api) -> None:
    answer = await api.post("/api/v1/queues", json={"name": "a", "max_attempts": "x"})

    assert answer.status_code == 400
    assert "max_attempts" in str(answer.json())


async def test_a_parameter_that_does_not_exist_is_refused(api: Api, context: ServerContext) -> None:
    answer = await api.get("/api/v1/export", params={"qurey": "source:orders"})

    assert answer.status_code == 400
    assert "Did you mean query?" in answer.json()["detail"]
    assert (await api.post("/api/v1/queues?name=a", json={})).status_code == 400


async def test_invalid_json_is_rejected(api: Api) -> None:
    answer = await api.post(
        "/api/v1/letters/review", content=b"{nonsense", headers={"content-type": "application/json"}
    )

    assert answer.status_code == 400
    assert answer.json()["detail"]


async def test_invalid_choices_are_rejected_with_the_valid_ones(api: Api) -> None:
    roles = await api.post("/api/v1/tokens", json={"name": "ci", "role": "king"})
    body = {"status": "gone"}
    standing = await api.put("/api/v1/groups/0123abcd/standing", json=body)
    query = await api.get("/api/v1/groups", params={"status": "gone"})

    said = [one.json()["errors"][0]["message"] for one in (roles, standing, query)]
    assert said[0].endswith("it is one of reader, operator, admin")
    assert said[1].endswith("it is one of muted, ongoing, resolved, snoozed")
    assert "resolved" in said[2]
