"""Mailboxes over HTTP."""

from deadletter.core.access import Role
from deadletter.server.context import ServerContext
from server.api.conftest import Api, Caller


async def test_a_mailbox_is_made_changed_and_deleted(api: Api, context: ServerContext) -> None:
    dead = await api.post("/api/v1/queues", json={"name": "orders-dlq"})
    made = await api.post(
        "/api/v1/queues", json={"name": "orders", "dead_queue": "orders-dlq", "max_attempts": 5}
    )
    assert (dead.status_code, made.status_code) == (201, 201)
    path = "/api/v1/queues/orders"

    changed = await api.patch(path, json={"dead_queue": None, "reason": "not needed"})

    assert changed.json()["dead_queue"] is None
    assert changed.json()["max_attempts"] == 5
    found = (await api.get(path)).json()
    assert found["options"] == changed.json()
    gone = await api.delete(path, params={"reason": "moved"})
    assert gone.json() == {"mailbox": "orders", "purged": 0}
    assert (await api.get(path)).status_code == 404
    said = [(e.action, e.reason) for e in await context.store.audit(target="orders")]
    assert said == [("create", ""), ("update", "not needed"), ("delete", "moved")]


async def test_a_name_may_have_slashes(api: Api) -> None:
    await api.post("/api/v1/queues", json={"name": "shop/orders"})

    found = await api.get("/api/v1/queues/shop/orders")

    assert found.json()["options"]["name"] == "shop/orders"


async def test_a_dead_queue_in_use_is_deleted_only_by_force(api: Api) -> None:
    await api.post("/api/v1/queues", json={"name": "dlq"})
    await api.post("/api/v1/queues", json={"name": "orders", "dead_queue": "dlq"})

    refused = await api.delete("/api/v1/queues/dlq")
    forced = await api.delete("/api/v1/queues/dlq", params={"force": "true"})

    assert (refused.status_code, forced.status_code) == (409, 200)


async def test_invalid_queue_options_are_rejected(api: Api) -> None:
    for options in [
        {"name": ""},
        {"name": "a b"},
        {"name": "a", "dead_queue": "a"},
        {"name": "a", "dead_queue": "nowhere"},
        {"name": "a", "max_attempts": -1},
        {"name": "a", "expire_after": 0},
        {"name": "a", "colour": "red"},
    ]:
        answer = await api.post("/api/v1/queues", json=options)

        assert answer.status_code == 400


async def test_mailboxes_of_others_do_not_exist(
    guarded_api: Api, guarded: ServerContext, caller: Caller
) -> None:
    chief, anna = await caller(Role.ADMIN), await caller(Role.ADMIN, "orders")
    for name in ("orders", "mails"):
        await guarded_api.post("/api/v1/queues", json={"name": name}, headers=chief)

    listed = (await guarded_api.get("/api/v1/queues", headers=anna)).json()
    assert [queue["options"]["name"] for queue in listed] == ["orders"]
    path = "/api/v1/queues/mails"
    for answer in (
        await guarded_api.get(path, headers=anna),
        await guarded_api.patch(path, json={"max_attempts": 1}, headers=anna),
        await guarded_api.delete(path, headers=anna),
        await guarded_api.post("/api/v1/queues", json={"name": "new"}, headers=anna),
    ):
        assert answer.status_code == 404
