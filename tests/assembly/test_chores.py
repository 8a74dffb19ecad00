"""What a server does beside answering, and how it says that it cannot."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from deadletter.assembly import open_engine
from deadletter.assembly.chores import Chore, chores
from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import ConfigError, Conflict, Unavailable
from deadletter.core.events import BackInReach, Event, OutOfReach
from deadletter.core.letter import State
from deadletter.ports import Engine, QueueOptions
from deadletter.runtime.group import LoopGroup
from deadletter.settings import Serve, Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.waiting import eventually
from office.making import make_letter

CLOCK = SystemClock()


class Doing:
    """Something that is done, and raises what it is told to."""

    def __init__(self) -> None:
        self.times = 0
        self.error: Exception | None = None

    async def __call__(self) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def doing() -> Doing:
    return Doing()


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
def chore(doing: Doing, seen: list[Event]) -> Chore:
    return Chore("sweep", doing, interval=0.01, clock=CLOCK, observe=seen.append)


@pytest.fixture
async def engine() -> Any:
    engine = await open_engine("memory://")
    yield engine
    await engine.close()


def all_chores(engine: Engine, settings: Settings) -> dict[str, Any]:
    assert engine.letters is not None
    made = chores(
        engine,
        engine.letters,
        getattr(engine, "access", None),
        settings,
        clock=CLOCK,
        dice=SystemDice(),
        observe=lambda event: None,
    )
    return {one.name: one for one in made}


async def test_it_is_done_again_and_again_until_told_to_stop(
    chore: Chore, doing: Doing
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await eventually(lambda: doing.times > 2)

    stop.set()

    async with asyncio.timeout(5):
        await running
    assert chore.ready() is None


async def test_a_long_pause_ends_at_once(doing: Doing, seen: list[Event]) -> None:
    chore = Chore("tidying", doing, interval=1e6, clock=CLOCK, observe=seen.append)
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await eventually(lambda: doing.times == 1)

    stop.set()

    async with asyncio.timeout(5):
        await running


async def test_an_engine_out_of_reach_is_said_once_and_again_when_it_is_back(
    chore: Chore, doing: Doing, seen: list[Event]
) -> None:
    doing.error = Unavailable("the database is away")
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await eventually(lambda: doing.times > 3)
    complaint = chore.ready()
    doing.error = None
    await eventually(lambda: chore.ready() is None)
    stop.set()
    await running

    assert complaint == "sweep failed: the database is away"
    assert [type(event) for event in seen] == [OutOfReach, BackInReach]


async def test_a_refusal_is_no_reason_not_to_serve(
    chore: Chore, doing: Doing, seen: list[Event]
) -> None:
    doing.error = Conflict("more than half would go")
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await eventually(lambda: doing.times > 3)
    stop.set()
    await running

    assert chore.ready() is None
    assert len(seen) == 1


async def test_a_chore_that_dies_is_complained_about(
    chore: Chore, doing: Doing
) -> None:
    doing.error = ValueError("a mistake of ours")
    group = LoopGroup(
        [chore], clock=CLOCK, observe=lambda event: None, install_signals=False
    )
    running = asyncio.create_task(group.run())

    def reasons() -> str:
        return " ".join(one.reason for one in group.complaints())

    await eventually(lambda: "a mistake of ours" in reasons())
    group.stop()
    await running


async def test_chores_are_as_the_settings_say(engine: Engine) -> None:
    target = AlertTarget(kind=TargetKind.SLACK, to="https://a.example/hook")

    usual = all_chores(engine, Settings())
    more = all_chores(
        engine,
        Settings(serve=Serve(retention_every=1.0), alerts=Alerts(targets=(target,))),
    )

    assert usual.keys() == {"plans", "tidying", "sweep"}
    assert more.keys() == {*usual, "alerts", "retention"}


async def test_a_target_that_nothing_can_be_sent_to_is_refused(engine: Engine) -> None:
    target = AlertTarget(kind=TargetKind.WEBHOOK, to="file:///etc/passwd")

    with pytest.raises(ConfigError, match="alerts cannot go to"):
        all_chores(engine, Settings(alerts=Alerts(targets=(target,))))


async def test_finished_letters_past_their_time_go(engine: Engine) -> None:
    assert engine.letters is not None
    now = CLOCK.now()
    old, young = timedelta(days=100), timedelta(days=1)
    await engine.letters.keep(
        [
            make_letter(1, state=State.CLOSED, now=now, died=old),
            make_letter(2, state=State.CLOSED, now=now, died=young),
            make_letter(3, now=now, died=old),
        ]
    )
    retention = all_chores(engine, Settings(serve=Serve(retention_every=1.0)))[
        "retention"
    ]

    await retention._once()

    counts = (await engine.letters.counts())["orders"]
    assert sum(counts.values()) == 2
    assert counts[State.PENDING] == 1


async def test_the_sweep_buries_by_what_the_mailbox_says(engine: Engine) -> None:
    broker = engine.broker
    await broker.create(QueueOptions(name="orders-dlq"))
    await broker.create(QueueOptions(name="orders", dead_queue="orders-dlq"))
    letter = make_letter(1, expires_at=CLOCK.now() - timedelta(seconds=1))
    await broker.sink("orders").send([letter.message])
    sweep = all_chores(engine, Settings())["sweep"]

    await sweep._once()

    assert engine.letters is not None
    counts = await engine.letters.counts()
    assert sum(counts["orders"].values()) == 1
    (copy,) = await broker.source("orders-dlq").receive(limit=1, wait=0.0, lease=5.0)
    assert copy.message.body == letter.message.body


async def test_plans_that_nobody_started_end(engine: Engine) -> None:
    assert engine.letters is not None
    letter = make_letter(1)
    await engine.letters.keep([letter])
    plan = Campaign(
        id="c-1",
        query="*",
        created_at=CLOCK.now() - timedelta(days=30),
        actor="anna",
        state=CampaignState.PLANNED,
    )
    await engine.letters.plan_replay(plan, [letter.id])

    await all_chores(engine, Settings())["plans"]._once()

    (found,) = await engine.letters.campaigns()
    assert found.state is CampaignState.CANCELLED
