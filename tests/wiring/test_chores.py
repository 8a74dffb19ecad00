"""What a server does beside answering, and how it says that it cannot."""

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deadletter.core.alerts import Alerts, AlertTarget, TargetKind
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import ConfigError, Conflict, Unavailable
from deadletter.core.events import Anchored, AnchorFailed, BackInReach, Event, OutOfReach
from deadletter.core.letter import By, State
from deadletter.core.query import parse
from deadletter.ports import Engine, QueueOptions
from deadletter.runtime.loop_group import LoopGroup
from deadletter.settings import Anchors, Serve, Settings
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from deadletter.wiring.chores import Chore, anchoring, chores
from deadletter.wiring.engines import open_engine, opened
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


async def test_chores_are_repeated_until_stopped(chore: Chore, doing: Doing) -> None:
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


async def test_work_in_parts_goes_on_at_once_and_obeys_a_stop_in_between(seen: list[Event]) -> None:
    parts = 0

    async def one_part() -> bool:
        nonlocal parts
        parts += 1
        return True  # there is always more

    chore = Chore("index", one_part, interval=1e6, in_parts=True, clock=CLOCK, observe=seen.append)
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await eventually(lambda: parts > 5)

    stop.set()

    async with asyncio.timeout(5):
        await running


async def test_a_part_that_is_never_answered_does_not_outlast_a_stop(seen: list[Event]) -> None:
    begun = asyncio.Event()

    async def unanswered() -> bool:
        begun.set()
        await asyncio.Event().wait()
        return True

    chore = Chore(
        "index", unanswered, interval=1e6, in_parts=True, clock=CLOCK, observe=seen.append
    )
    stop = asyncio.Event()
    running = asyncio.create_task(chore.run(stop))
    await begun.wait()

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


async def test_a_chore_that_dies_is_complained_about(chore: Chore, doing: Doing) -> None:
    doing.error = ValueError("a mistake of ours")
    group = LoopGroup([chore], clock=CLOCK, observe=lambda event: None, install_signals=False)
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
        engine, Settings(serve=Serve(retention_every=1.0), alerts=Alerts(targets=(target,)))
    )

    assert usual.keys() == {"plans", "tidying", "sweep", "regroup", "outcomes", "deaths"}
    assert more.keys() == {*usual, "alerts", "retention"}


async def test_a_target_that_nothing_can_be_sent_to_is_refused(engine: Engine) -> None:
    target = AlertTarget(kind=TargetKind.WEBHOOK, to="file:///etc/passwd")

    with pytest.raises(ConfigError, match="alerts cannot be sent to"):
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
    retention = all_chores(engine, Settings(serve=Serve(retention_every=1.0)))["retention"]

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


async def test_an_office_that_cannot_index_bodies_says_so(engine: Engine) -> None:
    with pytest.raises(ConfigError, match=r"index_bodies is 4096, but .* SQLite or"):
        all_chores(engine, Settings(index_bodies=4096))


async def test_bodies_are_indexed_as_the_settings_say_or_as_before(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path}/office.db") as engine:
        letters = engine.letters
        assert letters is not None
        await letters.keep([make_letter(1, body=b"a zebra"), make_letter(2)])

        async def looks_at(expected: int) -> bool:
            return (await letters.find(parse("zebra"))).looked_at == expected

        for said, looked in ((None, 2), (1_000, 1), (None, 1), (0, 2)):
            index = all_chores(engine, Settings(index_bodies=said))["index"]
            stop = asyncio.Event()
            running = asyncio.create_task(index.run(stop))
            await eventually(partial(looks_at, looked))
            stop.set()
            await running


async def test_the_end_of_the_audit_is_anchored_in_a_file_when_it_has_moved(
    engine: Engine, seen: list[Event], tmp_path: Path
) -> None:
    assert engine.letters is not None
    file = tmp_path / "anchors.log"
    (loop,) = anchoring(
        engine.letters, Anchors(file=str(file), every=0), clock=CLOCK, observe=seen.append
    )
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await engine.letters.record("note", "x", By("anna", ""))
    await eventually(lambda: file.exists() and file.read_text().count("\n") == 1)
    await engine.letters.record("note", "x", By("anna", ""))
    await eventually(lambda: file.read_text().count("\n") == 2)
    stop.set()
    await running

    entries = await engine.letters.audit()
    assert file.read_text().splitlines() == [f"{e.seq} {e.hash}" for e in entries]
    assert [(e.target, e.seq) for e in seen if isinstance(e, Anchored)] == [
        ("file", 1),
        ("file", 2),
    ]


async def test_places_that_cannot_be_anchored_in_are_told_and_tried_again(
    engine: Engine, seen: list[Event], tmp_path: Path
) -> None:
    assert engine.letters is not None
    await engine.letters.record("note", "x", By("anna", ""))
    file = tmp_path / "missing" / "anchors.log"
    anchors = Anchors(file=str(file), webhook="http://127.0.0.1:1/", every=0)
    (loop,) = anchoring(engine.letters, anchors, clock=CLOCK, observe=seen.append)
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await eventually(lambda: {"file", "webhook"} <= _not_anchored(seen))
    assert loop.ready() is None
    file.parent.mkdir()
    await eventually(file.exists)
    stop.set()
    await running

    with pytest.raises(ConfigError, match="anchors cannot be sent to"):
        anchoring(engine.letters, Anchors(webhook="ftp://x"), clock=CLOCK, observe=seen.append)


async def test_anchors_are_posted_and_signed(engine: Engine, seen: list[Event]) -> None:
    assert engine.letters is not None
    await engine.letters.record("note", "x", By("anna", ""))
    got: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split()[0])
        got.append(head + await reader.readexactly(size))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/anchors"
    anchors = Anchors(webhook=url, secret="s3cret-s3cret-s3cret-s3cret")
    (loop,) = anchoring(engine.letters, anchors, clock=CLOCK, observe=seen.append)
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await eventually(lambda: any(isinstance(event, Anchored) for event in seen))
    stop.set()
    await running
    server.close()

    (request,) = got
    (entry,) = await engine.letters.audit()
    assert entry.hash.encode() in request
    assert b"webhook-signature: v1," in request.lower()


def test_nothing_is_anchored_unless_the_settings_say_where(
    engine: Engine, seen: list[Event]
) -> None:
    assert engine.letters is not None
    assert not anchoring(engine.letters, Anchors(), clock=CLOCK, observe=seen.append)


def _not_anchored(seen: list[Event]) -> set[str]:
    return {event.target for event in seen if isinstance(event, AnchorFailed)}
