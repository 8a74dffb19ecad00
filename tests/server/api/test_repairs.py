"""Repairs over HTTP: a plan first, then the same change to the letters that fit."""

from typing import Any

import pytest

from deadletter.core.letter import DeadLetter
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.api.conftest import Api

REPAIR: dict[str, Any] = {"patch": {"currency": "EUR"}, "was": {"currency": "eur"}}


@pytest.fixture
async def letters(context: ServerContext) -> list[DeadLetter]:
    bodies = [b'{"currency": "eur", "n": 1.10}', b'{"currency": "usd"}', b"no"]
    made = [make_letter(number, body=body) for number, body in enumerate(bodies, 1)]
    await context.store.keep(made)
    return made


async def test_a_plan_counts_verdicts_and_shows_what_would_change(
    api: Api, letters: list[DeadLetter]
) -> None:
    asked = {"query": "source:orders", "samples": 1, **REPAIR}
    answer = await api.post("/api/v1/letters/repair/plan", json=asked)

    assert answer.status_code == 200
    plan = answer.json()
    assert plan["verdicts"] == {"change": 1, "other_value": 1, "not_json": 1}
    assert plan["letters"]["not_json"] == [letters[2].id]
    (sample,) = plan["samples"]
    assert sample["letter_id"] == letters[0].id
    assert {"sign": "+", "text": '  "currency": "EUR",'} in sample["differences"][0]["lines"]


async def test_a_repair_changes_letters_once(
    api: Api, context: ServerContext, letters: list[DeadLetter]
) -> None:
    asked = {"query": "source:orders", "expect": 3, "reason": "upper case", **REPAIR}
    first = await api.post("/api/v1/letters/repair", json=asked)
    second = await api.post("/api/v1/letters/repair", json=asked)

    assert first.json()["moved"] == 1
    assert second.json() == {
        "asked": 3,
        "moved": 0,
        "skipped": {
            "already have these values": 1,
            "have another value there": 1,
            "are not JSON that can be changed": 1,
        },
    }
    (letter,) = await context.store.get([letters[0].id])
    assert letter.message.body == b'{"currency": "EUR", "n": 1.10}'
    assert letter.original == letters[0].message


async def test_originals_come_back(
    api: Api, context: ServerContext, letters: list[DeadLetter]
) -> None:
    ids = [one.id for one in letters]
    await api.post("/api/v1/letters/repair", json={"ids": ids, "reason": "why", **REPAIR})

    answer = await api.post("/api/v1/letters/repair/undo", json={"ids": ids, "reason": "wrong"})

    assert answer.json()["moved"] == 1
    (letter,) = await context.store.get([ids[0]])
    assert letter.message == letters[0].message


async def test_numbers_are_stored_as_they_are_written(
    api: Api, context: ServerContext, letters: list[DeadLetter]
) -> None:
    patch = '{"n": 1.10, "m": 1e400}'
    asked = {"ids": [letters[1].id], "reason": "why", "patch": patch}
    await api.post("/api/v1/letters/repair", json=asked)

    (letter,) = await context.store.get([letters[1].id])
    assert letter.message.body == b'{"currency": "usd", "n": 1.10, "m": 1e400}'


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"query": "source:orders", "reason": "why", **REPAIR}, 400, "`expect` is required"),
        ({"query": "source:orders", "expect": 2, "reason": "why", **REPAIR}, 409, "not 2"),
        ({"query": "source:orders", "expect": 3, **REPAIR}, 400, "reason"),
        ({"query": "orders", "expect": 3, "reason": "why", **REPAIR}, 400, "free_text"),
        ({"reason": "why", **REPAIR}, 400, "ids"),
        ({"query": "*", "expect": 3, "reason": "why", "patch": {}}, 400, "empty"),
        ({"query": "*", "expect": 3, "reason": "why", "patch": "[1]"}, 400, "JSON object"),
        ({"query": "*", "expect": 3, "reason": "why", "patch": {"a": 1}, "was": "3"}, 400, "`was`"),
    ],
)
async def test_repairs_that_are_unclear_change_nothing(  # noqa: PLR0917 -- fixtures
    api: Api,
    context: ServerContext,
    letters: list[DeadLetter],
    asked: dict[str, Any],
    status: int,
    said: str,
) -> None:
    answer = await api.post("/api/v1/letters/repair", json=asked)

    assert answer.status_code == status
    assert said in answer.text
    found = await context.store.get([one.id for one in letters])
    assert {one.head.revision for one in found} == {0}
