"""Whoever can send a message can write our headers: nothing comes of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deadletter import App, DLQPolicy
from deadletter.core.backoff import NoBackoff
from deadletter.core.burial import to_message
from deadletter.core.campaign import Outcome
from deadletter.core.events import Event
from deadletter.core.letter import By, DeadLetter, GroupStatus, Standing, State
from deadletter.core.letter_filing import FINISHED
from deadletter.core.message import Lineage
from deadletter.core.query.parse import parse
from deadletter.office.replay import Replay
from deadletter.ports import LetterStore, Move, QueueOptions, Sealed
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from deadletter.wiring.engines import open_engine
from engines.forgery_rig import COUNTING, ENGINES, Forger, Lie, forger_on, unused

WITHIN = 30.0
BY = By("anna", "done")


class Shop:
    """Two mailboxes of two teams, on one broker and in one office."""

    def __init__(self, url: str, office: Path) -> None:
        self.events: list[Event] = []
        self.app = App(url, office=f"sqlite:///{office}", observe=self.events.append)
        self.orders, self.payments = unused("orders"), unused("payments")
        self.dead = f"{self.orders}-dlq"
        self.ran: list[str] = []
        self.is_mended = False
        self.seen: list[DeadLetter] = []
        policy = DLQPolicy(max_attempts=2, backoff=NoBackoff())
        self.app.handler(self.payments, policy=policy, brake=None)(self._declined)
        self.app.handler(self.orders, policy=policy, brake=None)(self._failed)
        self.app.letter_handler(self.dead, wait=1.0)(self.seen.append)

    async def _declined(self, body: bytes) -> None:
        if not self.is_mended:
            raise PermissionError("card declined")

    async def _failed(self, body: bytes) -> None:
        self.ran.append(body.decode())
        raise TimeoutError("no answer")

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[LetterStore]:
        stop = asyncio.Event()
        async with self.app:
            broker = (await self.app.engine()).broker
            for name in (self.dead, self.orders, self.payments):
                await broker.create(QueueOptions(name=name))
            working = asyncio.create_task(self.app.work(stop, watchdog=None))
            try:
                yield await self.app.letters()
            finally:
                stop.set()
                await working

    async def letters(self, source: str) -> list[DeadLetter]:
        store = await self.app.letters()
        page = await store.find(parse(f"source:{source}"))
        return list(await store.get([head.id for head in page.heads]))

    async def until(self, found: Callable[[list[DeadLetter]], object], of: str) -> None:
        async with asyncio.timeout(WITHIN):
            while not found(await self.letters(of)):  # noqa: ASYNC110 -- of the office
                await asyncio.sleep(0.05)

    async def victim(self) -> DeadLetter:
        """A letter of the other team: it is closed, and its group muted."""
        await self.app.send(self.payments, b"body", id="p-1")
        await self.until(len, self.payments)
        [letter] = await self.letters(self.payments)
        store = await self.app.letters()
        muted = Standing(status=GroupStatus.MUTED)
        await store.set_group(letter.head.fingerprint, muted, BY)
        move = Move(ids=(letter.id,), old=frozenset(State), new=State.CLOSED)
        await store.move(move, BY)
        [closed] = await self.letters(self.payments)
        assert closed.head.state is State.CLOSED
        return closed

    def ignored(self) -> set[str]:
        """What was said to be ignored."""
        return {
            event.what  # type: ignore[attr-defined]
            for event in self.events
            if type(event).__name__ == "HeadersIgnored"
        }


@pytest.fixture
def forger(engine: str, request: pytest.FixtureRequest) -> Forger:
    return forger_on(engine, request)


@pytest.fixture
def shop(forger: Forger, tmp_path: Path) -> Shop:
    return Shop(forger.url, tmp_path / "office.db")


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_closed_letter_of_another_mailbox_stays_as_it_is(
    shop: Shop, forger: Forger
) -> None:
    async with shop.at_work():
        before = await shop.victim()
        lineage = Lineage(letter_id=before.id, generation=1, campaign="c")

        await forger.send(shop.orders, Lie(id="p-1", body=b"body", lineage=lineage))
        await eventually(lambda: len(shop.ran) >= 2, within=WITHIN)
        await shop.until(len, shop.orders)

        assert await shop.letters(shop.payments) == [before]
        [letter] = await shop.letters(shop.orders)
        assert letter.id != before.id
        assert letter.head.replays == 0
        assert letter.head.fingerprint != before.head.fingerprint
    assert shop.ignored() == {"lineage"}


@pytest.mark.parametrize("attempts", [99, -1_000])
@pytest.mark.parametrize("engine", COUNTING)
async def test_attempts_count_from_one_whatever_a_producer_says(
    shop: Shop, forger: Forger, attempts: int
) -> None:
    async with shop.at_work():
        await forger.send(shop.orders, Lie(id="o-1", body=b"lie", attempts=attempts))
        await shop.until(len, shop.orders)

        [letter] = await shop.letters(shop.orders)
        assert shop.ran == ["lie", "lie"]
        assert letter.head.attempts == 2
        assert [attempt.number for attempt in letter.story()] == [1, 2]
    assert "attempts" in shop.ignored()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_forged_copy_in_a_dead_letter_mailbox_is_no_letter_of_another(
    shop: Shop, forger: Forger
) -> None:
    async with shop.at_work():
        victim = await shop.victim()
        copied = dict(to_message(victim).headers)

        await forger.send(shop.dead, Lie(id="x-1", body=b"lie", headers=copied))
        await eventually(lambda: shop.seen, within=WITHIN)

        [letter] = shop.seen
        assert letter.head.source == shop.dead
        assert letter.id != victim.id
        assert letter.head.fingerprint != victim.head.fingerprint
        kept = dict(letter.message.headers)
        assert {name: kept[name] for name in copied} == copied
    assert shop.ignored() == {"letter"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_replay_of_ours_is_believed(shop: Shop, forger: Forger) -> None:
    async with shop.at_work() as letters:
        await shop.app.send(shop.payments, b"body", id="p-1")
        await shop.until(len, shop.payments)
        shop.is_mended = True
        engine = await shop.app.engine()
        replay = Replay(letters, engine.broker, SystemClock(), SystemDice())

        campaign = await replay.start(f"source:{shop.payments}", BY)
        await replay.run(campaign.id)
        await shop.until(lambda found: found[0].head.state in FINISHED, shop.payments)

        [item] = (await letters.campaign_items(campaign.id)).items
        assert item.outcome is Outcome.CONFIRMED
    assert shop.ignored() == set()


@pytest.mark.parametrize("engine", COUNTING)
async def test_processes_of_one_office_believe_each_other(forger: Forger, tmp_path: Path) -> None:
    keys = []
    for office in ("one.db", "one.db", "another.db"):
        engine = await open_engine(forger.url, office=f"sqlite:///{tmp_path / office}")
        assert isinstance(engine.broker, Sealed)
        keys.append(engine.broker.seal.keys)
        await engine.close()
    signature = keys[0].sign("purpose", "part")

    assert keys[1].verifies(signature, "purpose", "part")
    assert not keys[2].verifies(signature, "purpose", "part")
