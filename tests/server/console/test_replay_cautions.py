"""What somebody is told before letters are sent."""

import pytest
from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, Care, KeptPlan, Verdict
from deadletter.core.errors import Unavailable
from deadletter.core.message import Message
from deadletter.ports import LetterStore, QueueOptions
from deadletter.server.console.replays.cautions import cautions_of
from deadletter.server.context import ServerContext
from office.making import NOW
from server.console.mailbox_rig import note_workers

PLAN = Campaign(
    id="c-1",
    query="*",
    created_at=NOW,
    actor="anna",
    state=CampaignState.PLANNED,
    plan=KeptPlan(
        total=9,
        judged=9,
        is_judged=True,
        verdicts={Verdict.READY: 9},
        targets={Verdict.READY: {"orders": 9}},
    ),
)


@pytest.fixture
async def orders(context: ServerContext) -> None:
    """A mailbox in which a message waits that nobody takes."""
    await context.engine.broker.create(QueueOptions(name="orders"))
    await context.engine.broker.create(QueueOptions(name="mails"))
    for name in ("orders", "mails"):
        old = Message(id="m", body=b"{}", sent_at=NOW.replace(year=2020))
        await context.engine.broker.sink(name).send([old])


async def test_a_mailbox_without_workers_is_named(context: ServerContext, orders: None) -> None:
    (alone,) = await cautions_of(context, PLAN)
    await note_workers(context, "1.8.1")
    worked = await cautions_of(context, PLAN)

    assert alone.startswith("No worker of orders was heard of lately.")
    assert worked == ()


async def test_somebody_who_holds_messages_works_a_mailbox(
    context: ServerContext, orders: None
) -> None:
    await context.engine.broker.source("orders").receive(limit=1, wait=0.0, lease=60.0)

    assert await cautions_of(context, PLAN) == ()


async def test_without_presence_the_numbers_of_the_mailbox_tell(
    context: ServerContext, orders: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(store: LetterStore, mailbox: str) -> None:
        return None

    monkeypatch.setattr("deadletter.server.console.replays.cautions.live_workers", unknown)
    monkeypatch.setattr(
        "deadletter.server.console.replays.cautions.unworked", lambda queues, now: queues
    )

    (said,) = await cautions_of(context, PLAN)

    assert said.startswith("Nobody seems to work orders: 1 message waits there")
    assert "mails" not in said


async def test_nothing_is_said_of_a_mailbox_that_is_worked(context: ServerContext) -> None:
    await context.engine.broker.create(QueueOptions(name="orders"))
    await note_workers(context, "1.8.1")

    assert await cautions_of(context, PLAN) == ()


async def test_consumers_of_others_report_nothing(context: ServerContext) -> None:
    through = structs.replace(PLAN, through="shop", care=Care(presume_after=600.0))
    never = structs.replace(PLAN, through="shop", care=Care(presume_after=0))

    assert "die again within 10 min count as handled" in (await cautions_of(context, through))[0]
    assert "No outcome will come" in (await cautions_of(context, never))[0]


async def test_what_the_plan_does_not_have_is_said(context: ServerContext) -> None:
    assert PLAN.plan is not None
    cut = structs.replace(PLAN, plan=structs.replace(PLAN.plan, more=True, gone=2))
    limited = structs.replace(PLAN, plan=structs.replace(PLAN.plan, more=True, limit=9))
    await note_workers(context, "1.8.1")

    said = await cautions_of(context, cut)

    assert said[0].startswith("More letters match than one replay can have: the oldest 9")
    assert said[1].startswith("2 letters were deleted")
    assert (await cautions_of(context, limited))[0].startswith("The limit was reached")


async def test_mailboxes_that_do_not_answer_do_not_hide_the_plan(
    context: ServerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise Unavailable("the broker is away")

    monkeypatch.setattr(context.engine.broker, "queues", away)

    assert "whether a worker runs is not known" in (await cautions_of(context, PLAN))[0]
