"""The loop that drains a dead place: keep first, forget second, whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import structs

from deadletter.core.burial import sign_copy, to_message
from deadletter.core.errors import Refused, Unavailable
from deadletter.core.events import BackInReach, Buried, Event, OutOfReach
from deadletter.core.letter import DeadLetter, State
from deadletter.core.query.ast import EVERYTHING
from deadletter.intake.dialects import Found
from deadletter.ports import KeyRing
from deadletter.runtime.drain_loop import Intake
from deadletter.stores.memory import MemoryEngine
from deadletter.testing.fakes import SeededDice
from deadletter.testing.virtual_time import VirtualClock
from dlq_rig import virtually
from office.making import make_letter


class Pile:
    """A dead place in memory, which tells what was done in which order."""

    place = "orders-dlq"

    def __init__(self, *ids: str) -> None:
        self.lying = {one: _thing(one) for one in ids}
        self.held: set[str] = set()
        self.acts: list[str] = []
        self.is_closed = False
        self.broken = 0

    async def depth(self) -> int:
        return len(self.lying)

    async def take(self, limit: int, *, wait: float = 0.0) -> Sequence[Found]:
        self._break()
        found = [one for id_, one in self.lying.items() if id_ not in self.held]
        if not found:
            await asyncio.sleep(wait)
        self.held.update(one.id for one in found[:limit])
        return found[:limit]

    async def forget(self, found: Sequence[Found]) -> None:
        self._break()
        for one in found:
            self.acts.append(f"forgot {one.id}")
            del self.lying[one.id]

    async def hand_back(self, found: Sequence[Found]) -> None:
        for one in found:
            self.acts.append(f"handed back {one.id}")
            self.held.discard(one.id)

    async def close(self) -> None:
        self.is_closed = True

    def _break(self) -> None:
        if self.broken:
            self.broken -= 1
            raise Unavailable("the broker is away")


class Rig:
    """A pile, an office, and the loop between them."""

    def __init__(self, *ids: str) -> None:
        self.clock = VirtualClock()
        self.pile = Pile(*ids)
        self.office = MemoryEngine(clock=self.clock, dice=SeededDice())
        assert self.office.letters is not None
        self.letters: Any = self.office.letters
        self.events: list[Event] = []
        keep = self.letters.keep
        self.keep: Callable[[Sequence[DeadLetter]], Awaitable[Any]] = keep
        self.letters.keep = self._keep
        self.intake = Intake(
            drain=self.pile,
            letters=self.letters,
            clock=self.clock,
            dice=SeededDice(),
            observe=self.events.append,
            batch=2,
        )

    async def _keep(self, letters: Sequence[DeadLetter]) -> Any:
        kept = await self.keep(letters)
        self.pile.acts.extend(f"kept {one.head.message_id}" for one in letters)
        return kept

    async def run_for(self, seconds: float) -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(self.intake.run(stop))
        await asyncio.sleep(seconds)
        stop.set()
        await running

    async def kept(self) -> set[str]:
        page = await self.letters.find(EVERYTHING)
        return {head.message_id for head in page.heads}

    def seen(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@virtually
async def test_things_are_kept_before_they_are_forgotten() -> None:
    rig = Rig("a", "b", "c")

    await rig.run_for(10)

    assert rig.pile.acts == [*("kept a", "kept b", "forgot a", "forgot b"), *("kept c", "forgot c")]
    assert await rig.kept() == {"a", "b", "c"}
    assert [event.message_id for event in rig.seen(Buried)] == ["a", "b", "c"]
    assert rig.pile.is_closed


@virtually
async def test_messages_that_arrive_later_are_drained() -> None:
    rig = Rig()
    stop = asyncio.Event()
    running = asyncio.create_task(rig.intake.run(stop))
    await asyncio.sleep(100)

    rig.pile.lying["late"] = _thing("late")
    await asyncio.sleep(10)
    stop.set()
    await running

    assert await rig.kept() == {"late"}
    assert rig.intake.heartbeat.elapsed() < 20


@virtually
async def test_while_the_office_is_away_nothing_is_forgotten() -> None:
    rig = Rig("a")
    keep = rig.keep
    rig.keep = _away
    stop = asyncio.Event()
    running = asyncio.create_task(rig.intake.run(stop))
    await asyncio.sleep(60)

    during = (list(rig.pile.acts), rig.intake.ready())
    rig.keep = keep
    await asyncio.sleep(20)
    stop.set()
    await running

    assert during == ([], "office is out of reach: the office is away")
    assert rig.pile.acts == ["kept a", "forgot a"]
    assert rig.intake.ready() is None
    assert rig.seen(OutOfReach)
    assert rig.seen(BackInReach)


@virtually
async def test_a_place_that_is_away_is_waited_for() -> None:
    rig = Rig("a")
    rig.pile.broken = 3

    await rig.run_for(60)

    assert await rig.kept() == {"a"}
    assert rig.pile.lying == {}


@virtually
async def test_messages_rejected_by_the_office_stay_and_do_not_block_others() -> None:
    rig = Rig("a", "bad", "c")
    keep = rig.keep

    async def picky(letters: Sequence[DeadLetter]) -> Any:
        if any(one.head.message_id == "bad" for one in letters):
            raise Refused("too large")
        return await keep(letters)

    rig.keep = picky
    await rig.run_for(30)

    assert await rig.kept() == {"a", "c"}
    assert list(rig.pile.lying) == ["bad"]
    assert rig.pile.acts[-1] == "handed back bad"
    assert len(rig.seen(OutOfReach)) == 1


@virtually
async def test_once_says_what_became_of_each() -> None:
    rig = Rig("a", "b")
    await rig.intake.once(1)
    rig.pile.lying["a"] = _thing("a")
    rig.pile.held.clear()

    taken = await rig.intake.once(10)

    news = {one.letter.head.message_id: one.kept for one in taken}
    assert news["b"] is not None
    assert news["b"].is_new
    assert news["a"] is not None
    assert not news["a"].is_new
    assert await rig.intake.once(10) == ()


async def _away(letters: Sequence[DeadLetter]) -> Any:
    raise Unavailable("the office is away")


def _thing(id_: str) -> Found:
    return Found(kind="sqs", place="orders-dlq", id=id_, body=b"{}")


@virtually
async def test_a_copy_of_a_letter_in_the_office_tells_nothing_new() -> None:
    """A closed letter stays closed, its attempts are not counted again."""
    rig = Rig()
    letter = make_letter(1, source="orders", state=State.CLOSED)
    await rig.letters.keep([letter])
    (before,) = await rig.letters.get([letter.id])
    await _put_copy(rig, letter)

    await rig.run_for(10)

    (after,) = await rig.letters.get([letter.id])
    assert after == before
    assert rig.pile.lying == {}
    assert rig.seen(Buried) == []


@virtually
async def test_a_copy_of_a_later_death_is_kept() -> None:
    """An office that was restored from a backup learns of it."""
    rig = Rig()
    letter = make_letter(1, source="orders")
    await rig.letters.keep([make_letter(1, source="orders", died=timedelta(hours=3))])
    await _put_copy(rig, letter)

    await rig.run_for(10)

    (after,) = await rig.letters.get([letter.id])
    assert after.head.dead_at == letter.head.dead_at
    assert len(rig.seen(Buried)) == 1


async def _put_copy(rig: Rig, letter: DeadLetter) -> None:
    keys = await KeyRing(rig.letters).keys()
    copy = sign_copy(to_message(letter), letter, rig.pile.place, keys)
    headers = (*copy.headers, ("dlq-message-id", copy.id.encode()))
    rig.pile.lying["copy"] = structs.replace(_thing("copy"), body=copy.body, headers=headers)
