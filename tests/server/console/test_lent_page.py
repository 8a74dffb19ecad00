"""The screens of lent queues: numbers, items, and acts with the rules of the protocol."""

from datetime import timedelta

import pytest

from deadletter.core.access import Role
from deadletter.queue_server.model import LeaseQueue, NewItem
from deadletter.server.context import ServerContext
from server.console.conftest import Browser, SignedIn

HOSTILE = b'{"note": "<script>alert(1)</script>\xe2\x80\xae", "password": "hunter2"}'


async def lend(context: ServerContext) -> None:
    """Make `jobs` with a dead queue: 3 waiting, 2 leased, 1 scheduled, and 1 dead."""
    items = context.items
    assert items is not None
    await items.create_queue(LeaseQueue(name="jobs-dead", lease_timeout=60, expire_timeout=3600))
    await items.create_queue(
        LeaseQueue(
            name="jobs",
            lease_timeout=60,
            expire_timeout=3600,
            dead_queue="jobs-dead",
            max_attempts=3,
            partitions=2,
        )
    )
    await items.produce("jobs", [[NewItem(payload=b"job %d" % n) for n in range(5)]])
    await items.lease("jobs", [2])
    later = context.clock.now() + timedelta(hours=1)
    await items.produce("jobs", [[NewItem(payload=b"later", enqueue_at=later)]])
    await items.produce("jobs-dead", [[NewItem(payload=HOSTILE, reference="r-1")]])


async def partition_of(context: ServerContext, queue: str) -> str:
    """Return the partition with most items."""
    assert context.items is not None
    stats = await context.items.stats(queue)
    return str(max(stats, key=lambda one: one.total).partition)


async def test_without_queues_it_teaches(browser: Browser) -> None:
    page = await browser.get("/lent")

    assert page.h1 == "No lent queue yet"
    assert "dlq queues lent create" in page.main.text


async def test_queues_are_listed_with_their_numbers(
    browser: Browser, context: ServerContext
) -> None:
    await lend(context)

    page = await browser.get("/lent")

    assert page.h1 == "2 lent queues"
    assert "4 waiting · 2 leased · 1 scheduled · 1 item in dead queues" in page.main.text
    jobs, dead = page.table("Queues of the queue server")
    assert jobs[1:4] == ["3", "2", "1"]
    assert jobs[5] == "3 attempts"
    assert "dead queue of jobs" in dead[0]


async def test_items_are_listed_by_state(browser: Browser, context: ServerContext) -> None:
    await lend(context)
    at = await partition_of(context, "jobs")

    everything = await browser.get(f"/lent/jobs?partition={at}")
    leased = await browser.get(f"/lent/jobs?partition={at}&list=leased")

    rows = everything.table(f"Items of partition {at}")
    assert sorted(row[2] for row in rows) == ["leased", "leased", "waiting", "waiting", "waiting"]
    assert {row[2] for row in leased.table(f"Items of partition {at}")} == {"leased"}
    assert [row[3] for row in leased.table(f"Items of partition {at}")] == ["1 of 3"] * 2
    seen = [
        await browser.get(f"/lent/jobs?partition={number}&list=scheduled") for number in range(2)
    ]
    assert sum("it can be leased" in page.main.text for page in seen) == 1
    for part in ("head", "items"):
        assert (await browser.part(f"/lent/jobs?partition={at}&part={part}")).text


async def test_long_queues_have_pages(browser: Browser, context: ServerContext) -> None:
    assert context.items is not None
    await context.items.create_queue(LeaseQueue(name="long", lease_timeout=60, expire_timeout=3600))
    await context.items.produce("long", [[NewItem(payload=b"%d" % n) for n in range(120)]])

    ids: list[str] = []
    path = "/lent/long"
    while path:
        page = await browser.get(path)
        ids += [row[1] for row in page.table("Items of partition 0")]
        path = next((one for one in page.links if "after=" in one), "")

    assert len(ids) == len(set(ids)) == 120
    assert ids == sorted(ids)


async def test_an_item_is_shown_masked_and_harmless(
    browser: Browser, context: ServerContext
) -> None:
    await lend(context)
    page = await browser.get("/lent/jobs-dead")
    assert len(page.table("Items of partition 0")) == 1
    assert "hunter2" not in page.main.text

    item = await browser.get(next(one for one in page.links if "item=" in one))

    assert "hunter2" not in item.main.text
    assert "[redacted]" in item.main.text
    assert "alert(1)" in item.main.text
    assert not item.main.all("script")
    assert "\u202e" not in item.main.text
    assert "r-1" in item.main.text
    await browser.get("/lent/jobs-dead?item=7fffffffffffffff", status=404)


async def test_chosen_items_are_deleted_with_a_reason(
    browser: Browser, context: ServerContext
) -> None:
    await lend(context)
    form = (await browser.get("/lent/jobs-dead")).form(action="/lent-queue/items")
    page = await browser.get("/lent/jobs-dead")
    (row,) = page.table("Items of partition 0")
    identifier = row[1].removesuffix("r-1")

    said = await browser.submit(form, id=[identifier], reason="a test")

    assert "jobs-dead: 1 of 1 items deleted from partition 0." in said.text
    (act,) = await context.store.audit(target="jobs-dead")
    assert (act.action, act.reason) == ("storage/items.delete", "a test")
    await browser.submit(form, without=("id",), reason="none", status=400)


async def test_a_queue_is_created_changed_filled_cleared_and_deleted(
    browser: Browser, context: ServerContext
) -> None:
    form = (await browser.get("/lent-queue/dialog?act=create")).form(action="/lent-queue/create")
    await browser.submit(form, name="mail/jobs", lease="30s", reason="new")
    assert browser.path == "/lent/mail%2Fjobs"
    about = "name=mail/jobs"
    form = (await browser.get(f"/lent-queue/dialog?act=change&{about}")).form(
        action="/lent-queue/change"
    )
    said = await browser.submit(form, lease="2m", max_attempts="4")
    assert "lease 2m0s, expire 24h0m0s, 4 attempts" in said.text

    form = (await browser.get(f"/lent-queue/dialog?act=produce&{about}")).form(
        action="/lent-queue/produce"
    )
    for _ in range(2):
        await browser.submit(form, payload="hello")
    assert context.items is not None
    await context.items.lease("mail/jobs", [1])

    form = (await browser.get(f"/lent-queue/dialog?act=clear&{about}")).form(
        action="/lent-queue/clear"
    )
    await browser.submit(form, reason="x", status=400)  # nothing is chosen
    said = await browser.submit(form, waiting="true", reason="test")
    assert "1 item deleted, of those waiting" in said.text
    await browser.submit(form, leased="true", reason="test", status=400)
    said = await browser.submit(form, leased="true", typed="mail/jobs", reason="test")
    assert "1 item deleted" in said.text

    form = (await browser.get(f"/lent-queue/dialog?act=delete&{about}")).form(
        action="/lent-queue/delete"
    )
    await browser.submit(form, typed="mail", reason="x", status=400)
    await browser.submit(form, typed="mail/jobs", reason="moved")
    await browser.get("/lent/mail%2Fjobs", status=404)
    acts = [entry.action for entry in await context.store.audit(target="mail/jobs")]
    assert acts == [
        *("queues.create", "queues.update", "queue.clear", "queue.clear", "queues.delete")
    ]


async def test_roles_see_and_do_what_the_protocol_lets_them(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await lend(guarded)
    reader = await signed_in(Role.READER)
    page = await reader.get("/lent/jobs")
    assert "What is in the items is for administrators." in page.main.text
    assert "job 1" not in page.main.text
    await reader.get("/lent/jobs?item=0000000000000001", status=403)
    await reader.get("/lent-queue/dialog?act=produce&name=jobs", status=403)

    operator = await signed_in(Role.OPERATOR)
    await operator.get("/lent-queue/dialog?act=produce&name=jobs")
    await operator.get("/lent-queue/dialog?act=clear&name=jobs", status=403)

    limited = await signed_in(Role.ADMIN, "jobs-dead")
    listed = await limited.get("/lent")
    assert listed.h1 == "1 lent queue"
    await limited.get("/lent/jobs", status=404)
    await limited.get("/lent-queue/dialog?act=delete&name=jobs", status=404)
    form = (await limited.get("/lent-queue/dialog?act=clear&name=jobs-dead")).form(
        action="/lent-queue/clear"
    )
    await limited.submit(form, name="jobs", waiting="true", reason="x", status=404)


@pytest.mark.parametrize("path", ["/lent/nowhere", "/lent-queue/dialog?act=clear&name=nowhere"])
async def test_an_unknown_queue_is_not_found(browser: Browser, path: str) -> None:
    await browser.get(path, status=404)
