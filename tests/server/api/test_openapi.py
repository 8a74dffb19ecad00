"""The OpenAPI document: complete, correct, with examples."""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, get_args, get_origin

import msgspec
import pytest
from litestar import Response

from deadletter.office.archive import check, read_letters
from deadletter.server.api.openapi import EXAMPLES, describe
from deadletter.server.api.replays import node_routes
from deadletter.server.app import _TOPICS, API, routes
from deadletter.server.auth import routes as auth
from server.api.conftest import Api

HANDLERS = {
    handler.operation_id or handler.fn.__name__: handler
    for handlers in (*(topic.routes for topic in _TOPICS), node_routes, auth.routes)
    for handler in handlers
}
NOTHING = {"sign_out", "revoke_token", "end_session"}  # is answered, nor asked
TEXT = {  # bytes, lines, a stream
    *("download_body", "get_repro", "reveal_repro", "export_letters", "listen")
}
OPEN = {"sign_in"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return describe("1.2.3", routes())


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation | {"method": method, "path": path}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "operationId" in operation
    }


async def test_the_openapi_document_needs_no_token(guarded_api: Api) -> None:
    answer = await guarded_api.get("/api/openapi.json")

    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.1")


def test_every_route_of_the_api_is_in_it(document: dict[str, Any]) -> None:
    described = operations(document)

    assert HANDLERS.keys() <= described.keys()
    for name in HANDLERS:
        assert described[name]["path"].startswith((API, "/admin/"))
        role = described[name].get("x-role")
        assert role in {"reader", "operator", "admin"} or name in OPEN
        assert described[name]["summary"]


def contents(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the bodies of requests and successful answers, with their operations."""
    for name, operation in operations(document).items():
        for told in operation.get("requestBody", {}).get("content", {}).values():
            yield name, "asked", told
        for status, answer in operation["responses"].items():
            for told in answer.get("content", {}).values():
                yield name, status, told


def test_there_is_an_example_of_every_request_and_answer(document: dict[str, Any]) -> None:
    found = list(contents(document))

    assert [(name, where) for name, where, told in found if "example" not in told] == []
    assert operations(document).keys() - {name for name, _, _ in found} == NOTHING
    assert {name for name, where, _ in found if where == "asked"} >= {
        *("sign_in", "issue_token", "import_letters", "replay_node", "plan_replay")
    }


def test_the_example_of_an_export_can_be_imported() -> None:
    assert EXAMPLES["export_letters"].answered == EXAMPLES["import_letters"].asked
    archive = BytesIO(EXAMPLES["import_letters"].asked.encode())

    assert check(archive).wrong == 0
    archive.seek(0)
    (letter,) = read_letters(archive)
    assert letter.head.source == "orders"


@pytest.mark.parametrize("name", sorted(HANDLERS.keys() - NOTHING - TEXT))
def test_every_example_is_what_is_really_asked_and_answered(name: str) -> None:
    example = EXAMPLES[name]
    signature = HANDLERS[name].parsed_fn_signature
    answered = signature.return_type.annotation
    if get_origin(answered) is Response:
        (answered,) = get_args(answered)

    told = msgspec.json.encode(example.answered)
    assert msgspec.json.decode(told, type=answered) is not None
    if "data" in signature.parameters:
        kind = signature.parameters["data"].annotation
        assert msgspec.convert(example.asked, kind)
    elif name != "import_letters":
        assert example.asked is None
    for other in example.others.values():
        assert msgspec.convert(msgspec.to_builtins(other), answered, strict=False)


def test_there_is_no_example_of_what_is_not_there() -> None:
    assert EXAMPLES.keys() == HANDLERS.keys() - NOTHING


def test_the_document_describes_the_limits_of_requests(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    assert schemas["Selection"]["additionalProperties"] is False
    after = next(
        parameter
        for parameter in operations(document)["report_replay"]["parameters"]
        if parameter["name"] == "after"
    )
    assert after["schema"]["minimum"] == 0


def test_posts_and_patches_take_idempotency_keys(document: dict[str, Any]) -> None:
    for name in HANDLERS:
        operation = operations(document)[name]
        names = [parameter["name"] for parameter in operation["parameters"]]
        takes = operation["method"] in ("post", "patch") and name not in OPEN
        assert ("idempotency-key" in names) == takes
