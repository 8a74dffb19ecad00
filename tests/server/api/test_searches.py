"""Saved searches over HTTP, by the client and by hand."""

from typing import Any

import pytest
from httpx import Response

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from server.api.conftest import Api, Caller

HERE = "/api/v1/searches"
ASKED = {"query": "source:orders age:>7d"}


async def save(api: Api, name: str, query: str, **how: Any) -> Response:
    return await api.put(f"{HERE}/{name}", json={"query": query}, **how)


async def names(api: Api, headers: dict[str, str]) -> list[str]:
    return [one["name"] for one in (await api.get(HERE, headers=headers)).json()]


async def test_a_search_is_saved_listed_and_deleted(api: Api, context: ServerContext) -> None:
    assert (await api.get(HERE)).json() == []

    saved = await api.put(f"{HERE}/Old%2F%20orders", json=ASKED | {"reason": "Mondays"})

    assert saved.status_code == 200
    (line,) = (await api.get(HERE)).json()
    assert line == saved.json()
    assert (line["name"], line["query"]) == ("Old/ orders", "source:orders age:>7d")
    assert line["can_change"]
    assert "principal" not in line
    (entry,) = await context.store.audit(target="search:Old/ orders")
    assert (entry.action, entry.reason) == ("save-search", "Mondays")

    gone = await api.delete(f"{HERE}/Old%2F%20orders", params={"reason": "done"})
    assert gone.json() == line
    assert (await api.get(HERE)).json() == []
    assert (await api.delete(f"{HERE}/Old%2F%20orders")).status_code == 404


async def test_an_invalid_search_says_where(api: Api) -> None:
    answer = await save(api, "mine", "is:open is:pendng")

    assert answer.status_code == 400
    assert "is:pendng is not valid" in answer.json()["detail"]
    assert answer.json()["at"] == 11


@pytest.mark.parametrize(
    ("name", "query"), [("x" * 81, "is:open"), ("a%1Bb", "is:open"), ("mine", " ")]
)
async def test_what_cannot_be_saved_is_refused(api: Api, name: str, query: str) -> None:
    assert (await save(api, name, query)).status_code == 400
    assert (await api.get(HERE)).json() == []


async def test_another_query_is_a_conflict_unless_it_replaces(api: Api) -> None:
    await save(api, "mine", "is:open")

    assert (await save(api, "mine", "is:open")).status_code == 200
    assert (await save(api, "mine", "is:closed")).status_code == 409
    done = await api.put(f"{HERE}/mine", json={"query": "is:closed", "replace": True})
    assert done.json()["query"] == "is:closed"


async def test_readers_look_and_do_not_save(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    ada, eve = await caller(Role.OPERATOR, name="ada"), await caller(Role.READER, name="eve")
    await save(guarded_api, "open", "is:open", headers=ada)
    await save(guarded_api, "secret", "body.password:a*", headers=ada)

    assert await names(guarded_api, ada) == ["open", "secret"]
    assert await names(guarded_api, eve) == ["open"]
    assert (await save(guarded_api, "mine", "is:open", headers=eve)).status_code == 403
    assert (await guarded_api.delete(f"{HERE}/open", headers=eve)).status_code == 403


async def test_limited_callers_see_what_works_for_them_and_change_their_own(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    ada = await caller(Role.OPERATOR, name="ada")
    ben = await caller(Role.OPERATOR, "mails", name="ben")
    for name, query in {
        "customer": "key:c-7",
        "mails": "source:mails key:c-7",
        "orders": "source:orders",
        "old": "age:>7d",
    }.items():
        await save(guarded_api, name, query, headers=ada)
    await save(guarded_api, "own", "key:c-8", headers=ben)

    listed = (await guarded_api.get(HERE, headers=ben)).json()

    assert {one["name"]: one["can_change"] for one in listed} == {
        "mails": False,
        "old": False,
        "own": True,
    }
    for name in ("customer", "mails"):
        change = {"query": "is:open", "replace": True}
        taken = await guarded_api.put(f"{HERE}/{name}", json=change, headers=ben)
        assert taken.status_code == 409
        assert "key:c-7" not in taken.text
        assert (await guarded_api.delete(f"{HERE}/{name}", headers=ben)).status_code == 404
    assert len(await names(guarded_api, ada)) == 5
    assert (await guarded_api.delete(f"{HERE}/own", headers=ben)).status_code == 200


async def test_limited_callers_do_not_read_of_searches_in_the_audit(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    ada = await caller(Role.OPERATOR, name="ada")
    await save(guarded_api, "mails", "key:c-7", headers=ada)

    seen = await guarded_api.get("/api/v1/audit", headers=await caller(Role.READER, "mails"))

    assert seen.json()["entries"] == []


async def test_the_audit_masks_what_readers_do_not_see(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    ada = await caller(Role.OPERATOR, name="ada")
    await save(guarded_api, "secret", "body.password:hunter2", headers=ada)
    await guarded_api.delete(f"{HERE}/secret", headers=ada)

    seen = await guarded_api.get("/api/v1/audit", headers=await caller(Role.READER))

    assert [one["action"] for one in seen.json()["entries"]] == ["save-search", "delete-search"]
    assert "hunter2" not in seen.text
