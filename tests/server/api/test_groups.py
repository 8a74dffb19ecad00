"""Groups over HTTP: list them and set their status."""

from datetime import timedelta
from typing import Any

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from office.making import make_letter, make_letters
from server.api.conftest import Api, Caller


async def test_groups_come_largest_first_with_their_share(api: Api, context: ServerContext) -> None:
    await context.store.keep(make_letters(3))
    await context.store.keep([make_letter(9, error_type="builtins.KeyError")])

    groups = (await api.get("/api/v1/groups")).json()["groups"]

    assert [(group["open"], group["share"]) for group in groups] == [(3, 0.75), (1, 0.25)]
    one = await api.get(f"/api/v1/groups/{groups[0]['fingerprint'][:6]}")
    assert one.json() == groups[0]


async def test_groups_go_on_where_the_page_before_ended(api: Api, context: ServerContext) -> None:
    names = [f"1-{n:03}" for n in range(7)]
    await context.store.keep([make_letter(n, fingerprint=f) for n, f in enumerate(names)])

    walked: list[str] = []
    asked: dict[str, Any] = {"limit": 3}
    while asked.get("after", "") is not None and len(walked) < 10:
        page = (await api.get("/api/v1/groups", params=asked)).json()
        walked += [group["fingerprint"] for group in page["groups"]]
        asked["after"] = page["after"]

    assert len(walked) == 7
    assert sorted(walked) == names
    nowhere = await api.get("/api/v1/groups", params={"after": "1-003"})
    assert nowhere.status_code == 400
    assert "not a valid cursor" in nowhere.text


async def test_group_decisions_are_kept(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    path = f"/api/v1/groups/{letter.head.fingerprint}/standing"
    says = {"status": "resolved", "version": "1.9", "owner": "anna", "reason": "fixed"}

    answer = await api.put(path, json=says)

    assert answer.status_code == 200
    said = answer.json()
    assert (said["status"], said["version"], said["owner"], said["note"]) == (
        "resolved",
        "1.9",
        "anna",
        "fixed",
    )


async def test_a_snoozed_group_is_not_listed(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    path = f"/api/v1/groups/{letter.head.fingerprint}/standing"
    until = (context.clock.now() + timedelta(hours=1)).isoformat()

    await api.put(path, json={"status": "snoozed", "until": until})

    assert (await api.get("/api/v1/groups")).json() == {"groups": [], "after": None}
    snoozed = (await api.get("/api/v1/groups", params={"status": "snoozed"})).json()
    assert len(snoozed["groups"]) == 1


async def test_invalid_standings_are_rejected(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])

    for says in [
        {"status": "regressed"},
        {"status": "snoozed"},
        {"status": "snoozed", "until": "2001-01-01T00:00:00Z"},
        {"status": "muted", "until": "2101-01-01T00:00:00Z"},
        {"status": "snoozed", "until": "2101-01-01T00:00:00"},
        {},
    ]:
        answer = await api.put(f"/api/v1/groups/{letter.head.fingerprint}/standing", json=says)

        assert answer.status_code == 400


async def test_groups_of_others_do_not_exist(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    theirs, ours = make_letter(1, source="mails"), make_letter(2)
    await guarded.store.keep([theirs, ours])
    somebody = await caller(Role.OPERATOR, "orders")

    listed = (await guarded_api.get("/api/v1/groups", headers=somebody)).json()["groups"]
    assert [(group["source"], group["share"]) for group in listed] == [("orders", 1.0)]
    asked = {"source": "mails"}
    nothing = await guarded_api.get("/api/v1/groups", params=asked, headers=somebody)
    assert nothing.json() == {"groups": [], "after": None}
    name = theirs.head.fingerprint
    for answer in (
        await guarded_api.get(f"/api/v1/groups/{name}", headers=somebody),
        await guarded_api.put(
            f"/api/v1/groups/{name}/standing", json={"status": "muted"}, headers=somebody
        ),
    ):
        assert answer.status_code == 404


async def test_groups_are_merged_split_and_put_back(api: Api, context: ServerContext) -> None:
    names = ("f-1", "f-2")
    await context.store.keep([make_letter(n, fingerprint=f) for n, f in enumerate(names)])
    first, second = (f"/api/v1/groups/{name}" for name in names)

    merged = await api.post(f"{first}/merge", json={"others": ["f-2"]})
    rules = await api.get("/api/v1/group-rules")
    split = await api.post(f"{first}/split", json={"query": "version:1.8.0"})
    back = await api.post(f"{first}/undo", json={"reason": "one cause after all"})

    assert merged.json() == {"group": "f-1", "moved": 1}
    (rule,) = rules.json()
    assert (rule["group"], rule["target"], rule["query"]) == ("f-2", "f-1", "")
    assert split.json()["moved"] == 2
    assert back.json() == {"group": "f-1", "moved": 2}
    wrong = await api.post(f"{first}/split", json={"query": "is:pending"})
    assert wrong.status_code == 400
    assert "no group can be split by it" in wrong.text
    nothing = await api.post(f"{first}/undo", json={})
    assert nothing.status_code == 404
    assert (await api.post(f"{second}/undo", json={})).status_code == 200


async def test_groups_are_counted_by_status_for_those_who_may_see_them(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await guarded.store.keep(
        [
            make_letter(n, source=name, fingerprint=f"1-{n}")
            for n, name in enumerate(["orders", "orders", "mails"])
        ]
    )
    told = {"status": "muted"}
    headers = await caller(Role.OPERATOR)
    await guarded_api.put("/api/v1/groups/1-0/standing", json=told, headers=headers)

    async def counts(*sources: str) -> dict[str, Any]:
        asked = await guarded_api.get(
            "/api/v1/groups/counts", headers=await caller(Role.READER, *sources)
        )
        found: dict[str, Any] = asked.json()
        return found

    everything = await counts()
    assert (everything["listed"], everything["total"]) == (2, 3)
    assert everything["statuses"]["muted"] == 1
    assert everything["statuses"]["new"] == 2
    mine = await counts("orders")
    assert (mine["listed"], mine["total"], mine["statuses"]["new"]) == (1, 2, 1)


async def test_groups_are_found_by_text_and_listed_latest_first(
    api: Api, context: ServerContext
) -> None:
    for n, text in enumerate(["no rate for CH", "no RATE for NO", "the bank is closed"]):
        died = timedelta(minutes=9 - n)
        await context.store.keep([make_letter(n, fingerprint=f"2-{n}", error_text=text, died=died)])

    found = await api.get("/api/v1/groups", params={"text": "Rate", "order": "latest"})
    wrong = await api.get("/api/v1/groups", params={"order": "oldest"})

    assert [group["fingerprint"] for group in found.json()["groups"]] == ["2-1", "2-0"]
    assert wrong.status_code == 400


async def test_versions_of_a_group_are_told_to_those_who_see_it(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await guarded.store.keep(
        [
            make_letter(1, fingerprint="2-a", version="1.7"),
            make_letter(2, fingerprint="2-b", version="1.8"),
        ]
    )

    mine = await guarded_api.get(
        "/api/v1/groups/2-a/versions", headers=await caller(Role.READER, "orders")
    )
    other = await guarded_api.get(
        "/api/v1/groups/2-a/versions", headers=await caller(Role.READER, "mails")
    )

    told = mine.json()
    assert [one["version"] for one in told["versions"]] == ["1.7"]
    assert (told["fix"], told["since_fix"]) == ("1.8", 0)
    assert told["before_fix"] == "group:2-a is:open version:<1.8"
    assert other.status_code == 404


async def test_a_note_is_set_and_removed(api: Api, context: ServerContext) -> None:
    letter = make_letter()
    await context.store.keep([letter])
    path = f"/api/v1/groups/{letter.head.fingerprint}/standing"

    await api.put(path, json={"status": "ongoing", "reason": "looking"})
    answer = await api.put(path, json={"status": "muted", "reason": "known", "note": ""})

    assert answer.json()["note"] == ""
    reasons = [entry.reason for entry in await context.store.audit()]
    assert reasons == ["looking", "known"]
