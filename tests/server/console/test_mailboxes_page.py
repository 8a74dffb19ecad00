"""The screens of mailboxes: what is in them, who works them, and what administrators do."""

import asyncio
from collections.abc import Sequence

import pytest

from deadletter.core.access import Role
from deadletter.core.message import Message
from deadletter.office.office import Mailboxes
from deadletter.ports import QueueInfo
from deadletter.server.console.queues.broker_look import BrokerLooks
from deadletter.server.context import ServerContext
from deadletter.testing.fakes import FakeClock
from server.console.conftest import Browser, SignedIn
from server.console.mailbox_rig import HOSTILE, furnish, note_workers

TABLE = "Mailboxes: messages, letters, workers and brakes"


async def test_an_office_without_mailboxes_teaches(browser: Browser) -> None:
    page = await browser.get("/queues")

    assert page.h1 == "No mailboxes yet"
    assert "dlq work shop:app" in page.main.text


async def test_mailboxes_are_listed_with_sums_workers_and_brakes(
    browser: Browser, context: ServerContext
) -> None:
    await furnish(context)

    page = await browser.get("/queues")

    assert page.h1 == "3 mailboxes, 1 stopped by its brake"
    text = page.main.text
    assert "1.8.1 runs on 1 of 2, 1.8.0 runs on 1 of 2" in text
    rows = {row[0]: row for row in page.table(TABLE)}
    mails, orders, dead = rows  # those in trouble first
    rows = dict(zip(("mails", "orders", "orders-dlq"), rows.values(), strict=True))
    assert (mails, orders, dead[:10]) == ("mails", "orderscopies to orders-dlq", "orders-dlq")
    assert rows["orders"][1:4] == ["3", "0", "2"]
    assert "3 pending" in rows["orders"][5]
    assert "2 workers" in rows["orders"][6]
    assert "5 = 0 + 5" in rows["orders"][7]
    assert "adds up" in rows["orders"][7]
    assert "open" in rows["mails"][8]
    assert "dead queue of orders" in rows["orders-dlq"][0]


async def test_sums_that_do_not_add_up_are_said(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(context)
    found = await context.office.mailboxes.list()

    async def one_less(self: object) -> Sequence[QueueInfo]:
        for queue in found:
            queue.tally["sent"] = queue.tally.get("sent", 0) + (queue.options.name == "orders")
        return found

    monkeypatch.setattr(type(context.office.mailboxes), "list", one_less)

    page = await browser.get("/queues")
    one = await browser.get("/queues/orders")

    assert page.h1 == "3 mailboxes, 1 where messages do not add up, 1 stopped by its brake"
    assert "does not add up" in page.table(TABLE)[0][7]
    assert "1 message is missing (6 sent, 0 left it, 5 are in it)" in one.main.text


async def test_a_slow_broker_does_not_hold_up_the_page(
    browser: Browser, context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(context)
    asked = 0

    async def never(self: object) -> Sequence[QueueInfo]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(3600)
        return ()

    monkeypatch.setattr(type(context.office.mailboxes), "list", never)
    monkeypatch.setattr("deadletter.server.console.queues.mailbox_routes.PATIENCE", 0.05)

    page = await browser.get("/queues")
    part = await browser.part("/queues?part=rows")
    one = await browser.get("/queues/orders")

    assert "The broker did not answer within 0.3 s" in page.main.text
    assert "did not answer within 0.05 s" in part.text
    assert "orders" in page.main.text  # by its letters
    assert "3 open letters" in one.main.text
    assert asked == 1  # everybody waits for the same answer


async def test_whoever_looks_anew_takes_no_answer_away_from_others(
    context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = type(context.office.mailboxes).list

    async def slow(self: Mailboxes) -> Sequence[QueueInfo]:
        await asyncio.sleep(0)
        return await listed(self)

    monkeypatch.setattr(type(context.office.mailboxes), "list", slow)
    looks = BrokerLooks(context.office.mailboxes, context.clock)

    async def twice() -> Sequence[QueueInfo]:
        await looks.look(5.0)
        looks.forget()  # as a page does that misses a mailbox in the answer
        return await looks.look(5.0)

    assert await asyncio.gather(twice(), looks.look(5.0), twice()) == [[], [], []]


async def test_a_mailbox_shows_who_works_it_and_what_died(
    browser: Browser, context: ServerContext
) -> None:
    await furnish(context)

    page = await browser.get("/queues/orders")

    text = page.main.text
    assert "shop-1:17" in text
    assert "2 in hand of 10" in text
    assert "orders-dlq" in text
    labels = [one.get("aria-label") for one in page.main.all("svg")]
    assert any(one.startswith("Deaths in orders by version") for one in labels)
    for part in ("head", "workers", "deaths", "groups", "acts"):
        assert (await browser.part(f"/queues/orders?part={part}")).text


async def test_a_silent_worker_is_said_to_be(
    browser: Browser, context: ServerContext, clock: FakeClock
) -> None:
    await furnish(context)
    clock.advance(100)
    await note_workers(context, "1.8.1")

    text = (await browser.get("/queues/orders")).main.text

    assert "not heard of since" in text
    assert "all run 1.8.1" in text  # silent ones do not count


async def test_hostile_text_of_a_brake_is_spelled_out(
    browser: Browser, context: ServerContext
) -> None:
    await furnish(context)

    page = await browser.get("/queues/mails")

    assert "Its brake is open" in page.main.text
    assert not page.main.all("script")
    assert "\u202e" not in page.main.raw
    assert HOSTILE not in page.main.text


async def test_a_mailbox_is_created_changed_undone_and_deleted_without_scripts(
    browser: Browser, context: ServerContext
) -> None:
    await furnish(context)
    form = (await browser.get("/queue/dialog?act=create")).form(action="/queue/create")
    await browser.submit(form, name="shop/new", max_attempts="3", reason="more room")
    assert browser.path == "/queues/shop%2Fnew"

    form = (await browser.get("/queue/dialog?act=change&name=shop/new")).form(
        action="/queue/change"
    )
    said = await browser.submit(form, dead_queue="orders-dlq", max_attempts="7")
    options = (await context.office.mailboxes.get("shop/new")).options
    assert (options.dead_queue, options.max_attempts) == ("orders-dlq", 7)
    assert "The dead queue and max attempts of shop/new changed." in said.text

    await browser.submit(said.form(button="Undo"))
    options = (await context.office.mailboxes.get("shop/new")).options
    assert (options.dead_queue, options.max_attempts) == (None, 3)

    form = (await browser.get("/queue/dialog?act=delete&name=shop/new")).form(
        action="/queue/delete"
    )
    await browser.submit(form, typed="shop", status=400)
    said = await browser.submit(form, typed="shop/new", reason="moved")
    assert "Mailbox shop/new is deleted, with 0 messages." in said.text
    await browser.get("/queues/shop%2Fnew", status=404)
    acts = [(e.action, e.reason) for e in await context.store.audit(target="shop/new")]
    assert acts[0] == ("create", "more room")
    assert acts[-1] == ("delete", "moved")


async def test_a_dead_queue_in_use_is_not_deleted(browser: Browser, context: ServerContext) -> None:
    await furnish(context)
    dialog = await browser.part("/queue/dialog?act=delete&name=orders-dlq")
    assert "It is the dead queue of orders." in dialog.text
    form = dialog.form(action="/queue/delete")

    said = await browser.submit(form, hx=True, typed="orders-dlq", status=409)
    assert "orders" in said.text
    await browser.submit(form, hx=True, typed="orders-dlq", force="true")


async def test_a_brake_is_released_by_an_operator(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await furnish(guarded)
    operator = await signed_in(Role.OPERATOR)
    dialog = await operator.get("/queue/dialog?act=release&name=mails")

    said = await operator.submit(dialog.form(action="/queue/release"), reason="known")

    assert "Released 1 worker of mails" in said.text
    await operator.submit(dialog.form(action="/queue/release"), hx=True, status=200)


async def test_readers_see_no_acts_and_limited_ones_their_mailboxes_only(
    signed_in: SignedIn, guarded: ServerContext
) -> None:
    await furnish(guarded)
    reader = await signed_in(Role.READER)
    page = await reader.get("/queues")
    assert "New mailbox" not in page.text
    assert "Delete" not in (await reader.get("/queues/orders")).main.text
    await reader.get("/queue/dialog?act=release&name=mails", status=403)

    limited = await signed_in(Role.ADMIN, "mails")
    assert "orders" not in (await limited.get("/queues")).main.text
    await limited.get("/queues/orders", status=404)
    for act in ("change", "delete", "release"):
        await limited.get(f"/queue/dialog?act={act}&name=orders", status=404)
    operator = await signed_in(Role.OPERATOR)
    await operator.get("/queue/dialog?act=create", status=403)


async def test_messages_nobody_works_are_marked(browser: Browser, context: ServerContext) -> None:
    await context.engine.broker.sink("lonely").send(
        [Message(id="m", body=b"{}", sent_at=context.clock.now())]
    )

    page = await browser.get("/queues/lonely")

    assert "1 message is ready, and no worker was heard of lately." in page.main.text


@pytest.mark.parametrize("path", ["/queues/nowhere", "/queue/dialog?act=delete&name=nowhere"])
async def test_an_unknown_mailbox_is_not_found(browser: Browser, path: str) -> None:
    page = await browser.get(path, status=404)

    assert "there is no mailbox" in page.text.lower()
