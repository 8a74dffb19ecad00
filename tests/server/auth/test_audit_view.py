"""The audit of limited callers reveals nothing about others."""

from typing import Any

import pytest

from deadletter.core.access import Role
from deadletter.core.letter import By
from deadletter.server.acting import office_views
from deadletter.server.context import ServerContext
from office.making import make_letter
from server.auth.conftest import Client, bearer
from server.conftest import token

AUDIT = "/api/v1/audit"


@pytest.fixture
async def limited(guarded: ServerContext) -> dict[str, str]:
    """The headers of a caller of `orders`, with 6 of 66 audit entries."""
    letters = [make_letter(number) for number in range(1, 7)]
    await guarded.store.keep(letters)
    first, *others = [letter.id for letter in letters]
    await guarded.store.note([first], "mine", By("bo"))
    for number in range(30):
        await guarded.store.record("issue", f"token:{number}", By("root"))
    await guarded.store.note(others, "mine", By("bo"))
    for number in range(30):
        await guarded.store.record("update", f"mails-{number}", By("root"))
    return bearer(await token(guarded, Role.READER, "orders"))


async def pages(client: Client, headers: dict[str, str], **asked: Any) -> list[Any]:
    """Return all pages of the audit."""
    found: list[Any] = []
    after = 0
    while after is not None:
        params = {**asked, "after": after}
        answer = await client.get(AUDIT, params=params, headers=headers)
        assert answer.status_code == 200
        found.append(answer.json())
        after = found[-1]["after"]
        assert len(found) < 200
    return found


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_no_cursor_is_that_of_an_act_of_others(
    visitor: Client, limited: dict[str, str], limit: int
) -> None:
    found = await pages(visitor, limited, limit=limit)

    entries = [entry for page in found for entry in page["entries"]]
    assert [entry["detail"] for entry in entries] == ["mine"] * 6
    seqs = {entry["seq"] for entry in entries}
    assert {page["after"] for page in found} <= {None, *seqs}


async def test_nothing_tells_whether_there_is_something_about_a_target(
    visitor: Client, limited: dict[str, str]
) -> None:
    answers = {
        (await visitor.get(AUDIT, params=params, headers=limited)).text
        for target in ("token:1", "mails-3", "nosuch")
        for params in ({"target": target, "limit": 1}, {"target": target})
    }

    assert answers == {'{"entries":[],"after":null}'}


async def test_acts_of_others_without_end_are_looked_through_bit_by_bit(
    visitor: Client, limited: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(office_views, "STEP", 3)
    monkeypatch.setattr(office_views, "STEPS", 2)

    found = await pages(visitor, limited, limit=100)

    entries = [entry for page in found for entry in page["entries"]]
    assert [entry["detail"] for entry in entries] == ["mine"] * 6
    assert len(found) > 5  # some of them are empty, and go on where they began
    seqs = {entry["seq"] for entry in entries}
    assert {page["after"] for page in found} <= {None, 0, *seqs}


async def latest_pages(client: Client, headers: dict[str, str], **asked: Any) -> list[Any]:
    """Return all pages of the audit, newest first."""
    found: list[Any] = []
    while not found or found[-1]["before"] is not None:
        params = asked | ({"before": found[-1]["before"]} if found else {})
        answer = await client.get(f"{AUDIT}/latest", params=params, headers=headers)
        assert answer.status_code == 200
        found.append(answer.json())
        assert len(found) < 200
    return found


@pytest.mark.parametrize(("limit", "step"), [(1, 500), (2, 500), (100, 500), (100, 3)])
async def test_the_newest_acts_come_first_without_those_of_others(
    visitor: Client, limited: dict[str, str], limit: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(office_views, "STEP", step)
    monkeypatch.setattr(office_views, "STEPS", 2)

    found = await latest_pages(visitor, limited, limit=limit)

    entries = [entry for page in found for entry in page["entries"]]
    assert [entry["detail"] for entry in entries] == ["mine"] * 6
    seqs = [entry["seq"] for entry in entries]
    assert seqs == sorted(seqs, reverse=True)
    assert {page["before"] for page in found} <= {None, office_views.LAST, *seqs}
    of_root = await latest_pages(visitor, limited, actor="root")
    assert not any(page["entries"] for page in of_root)


async def test_the_newest_acts_are_filtered_by_actor_action_target_and_time(
    visitor: Client, guarded: ServerContext, limited: dict[str, str]
) -> None:
    everybody = bearer(await token(guarded, Role.READER))
    path = f"{AUDIT}/latest"

    async def targets(**asked: Any) -> list[str]:
        answer = await visitor.get(path, params=asked, headers=everybody)
        return [entry["target"] for entry in answer.json()["entries"]]

    assert await targets(actor="root", action="update", limit=2) == ["mails-29", "mails-28"]
    assert await targets(action="issue", target="token:7") == ["token:7"]
    first = (await visitor.get(path, params={"limit": 500}, headers=everybody)).json()["entries"]
    assert len(await targets(since=first[0]["at"], limit=500)) >= 1
    assert await targets(since="2100-01-01T00:00:00") == []
    wrong = await visitor.get(path, params={"since": "yesterday"}, headers=everybody)
    assert wrong.status_code == 400
