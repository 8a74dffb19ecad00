"""Outages over HTTP, in health, and through the client."""

from msgspec.structs import replace

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from deadletter.server.health import Office, Status, judge
from deadletter.testing.letters_filing import a_window
from server.api.conftest import Api, Caller


async def hold_back(context: ServerContext, *mailboxes: str) -> None:
    now = context.clock.now()
    for number, mailbox in enumerate(mailboxes):
        window = replace(a_window(number, mailbox=mailbox), opened_at=now, seen_at=now)
        await context.store.save_window(window)


async def test_outages_are_listed_and_released(api: Api, context: ServerContext) -> None:
    await hold_back(context, "mails", "orders")

    listed = (await api.get("/api/v1/outages")).json()
    of_one = (await api.get("/api/v1/outages", params={"mailbox": "mails"})).json()
    said = {"mailbox": "orders", "reason": "known"}
    released = await api.post("/api/v1/outages/release", json=said)

    assert {one["window"]["mailbox"] for one in listed} == {"mails", "orders"}
    assert {one["state"] for one in listed} == {"open"}
    assert [one["window"]["mailbox"] for one in of_one] == ["mails"]
    assert released.json() == {"mailbox": "orders", "windows": 1}
    open_ = (await api.get("/api/v1/outages", params={"open": "true"})).json()
    reasons = {
        one["window"]["mailbox"]: (one["window"]["release"] or {}).get("reason") for one in open_
    }
    assert reasons == {"mails": None, "orders": "known"}


async def test_releasing_an_outage_that_is_not_open_is_not_found(api: Api) -> None:
    answer = await api.post("/api/v1/outages/release", json={"mailbox": "orders"})

    assert answer.status_code == 404
    assert "is not open" in answer.text


async def test_outages_of_others_do_not_exist(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    await hold_back(guarded, "mails", "orders")
    anna = await caller(Role.OPERATOR, "orders")
    reader = await caller(Role.READER)
    path = "/api/v1/outages/release"

    listed = (await guarded_api.get("/api/v1/outages", headers=anna)).json()
    other = await guarded_api.post(path, json={"mailbox": "mails"}, headers=anna)
    refused = await guarded_api.post(path, json={"mailbox": "orders"}, headers=reader)

    assert [one["window"]["mailbox"] for one in listed] == ["orders"]
    assert (other.status_code, refused.status_code) == (404, 403)


async def test_health_warns_while_a_mailbox_is_held_back(api: Api, context: ServerContext) -> None:
    await hold_back(context, "orders")

    told = (await api.get("/health")).json()

    assert told["status"] == "warn"
    (check,) = told["checks"]["mailbox:brake"]
    assert check["componentId"] == "orders"
    assert "failed by one cause" in check["output"]


def test_names_are_left_out_where_callers_need_a_token() -> None:
    told = judge(Office({}, held_back={"orders": "why"}), [], named=False)

    assert told.status is Status.WARN
    (check,) = told.checks["mailbox:brake"]
    assert (check.component_id, check.output) == ("*", "")
