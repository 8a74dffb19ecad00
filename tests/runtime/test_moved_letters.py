"""Messages that a broker moves to a dead queue by itself: one letter each, whoever keeps it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from deadletter.core.backoff import Fixed
from deadletter.core.burial import burial
from deadletter.core.errors import RetryLater
from deadletter.core.events import Buried, LetterHandled
from deadletter.core.failure import Bury, Reason, Retry, Trouble
from deadletter.core.ids import letter_id
from deadletter.core.letter import By, DeadLetter, State
from deadletter.core.message import BrokerMove, Delivery, Lineage, Message
from deadletter.core.policy import DLQPolicy, last_word
from deadletter.ports import LetterStore, Move
from deadletter.runtime.outcomes import is_left_to_broker
from deadletter.stores.memory.letters import MemoryLetters
from deadletter.testing.fakes import SeededDice
from deadletter.testing.virtual_time import VirtualClock
from dlq_rig import DLQ, Rig, Wrapped, virtually
from situations import delivery, failure

MOVE = BrokerMove(source="orders", receives=3)


class Moved(Wrapped):
    """A source whose deliveries were moved there by their broker."""

    lineage: Lineage | None = None

    async def receive(self, **how: Any) -> Sequence[Delivery]:
        found = await self.inner.receive(**how)
        return [
            structs.replace(
                one, moved=MOVE, message=structs.replace(one.message, lineage=self.lineage)
            )
            for one in found
        ]


class Bench:
    """A consumer with an office, and the letters that its handler was given."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.store: LetterStore = MemoryLetters(clock=clock, dice=SeededDice())
        self.given: list[DeadLetter] = []
        self.source: Any = None
        self.rig = Rig(self._handle, clock=clock, source=self._moved, letters=self.store)

    def _moved(self, source: Any) -> Any:
        self.source = Moved(source)
        return self.source

    async def _handle(self, letter: DeadLetter) -> None:
        self.given.append(letter)

    def worker_letter(self, text: str = "no answer") -> DeadLetter:
        """The letter that a worker keeps of the message before its broker moves it."""
        message = Message(id="a", body=b"{}", sent_at=self.rig.clock.now())
        return burial(
            delivery(3, message=message),
            failure(text=text),
            Bury(Reason.ATTEMPTS_EXHAUSTED, "failed 3 of 3 attempts"),
            history="",
            now=self.rig.clock.now(),
            consumer="worker",
            version="",
        )

    async def run(self) -> DeadLetter:
        await self.rig.consumer.run_turns(1)
        return self.given[-1]


@virtually
async def test_a_message_without_a_letter_gets_one_before_it_is_handled() -> None:
    bench = Bench()
    await bench.rig.put("a")

    letter = await bench.run()

    (kept,) = await bench.store.get([letter_id("orders", "", "a")])
    assert kept == letter
    assert (letter.head.source, letter.head.attempts) == ("orders", 3)
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert (letter.head.trouble, letter.head.code) == (Trouble.WORKER_LOST, "RECEIVED_TOO_OFTEN")
    (buried,) = bench.rig.seen(Buried)
    assert (buried.letter_id, buried.mailbox, buried.is_new) == (letter.id, "orders", True)


@virtually
async def test_the_letter_of_the_worker_is_handed_to_the_handler() -> None:
    bench = Bench()
    (known,) = await bench.store.keep([bench.worker_letter()])
    await bench.rig.put("a")
    await asyncio.sleep(7.0)

    letter = await bench.run()

    assert (letter.id, letter.head.error_text) == (known.id, "no answer")
    assert bench.rig.seen(Buried) == []
    (handled,) = bench.rig.seen(LetterHandled)
    assert handled.age == 7.0  # since the worker gave it up


@virtually
async def test_a_message_received_twice_is_one_death() -> None:
    bench = Bench()
    await bench.rig.put("a")
    first = await bench.run()
    await bench.rig.put("a")
    await asyncio.sleep(5.0)

    second = await bench.run()

    assert second == first
    assert len(bench.rig.seen(Buried)) == 1


@virtually
async def test_a_closed_letter_is_not_opened_by_its_own_message() -> None:
    bench = Bench()
    (known,) = await bench.store.keep([bench.worker_letter()])
    closing = Move(ids=(known.id,), old=frozenset({State.PENDING}), new=State.CLOSED)
    await bench.store.move(closing, By("carla", "done"))
    await bench.rig.put("a")

    assert (await bench.run()).head.state is State.CLOSED


@virtually
async def test_a_copy_that_is_still_waited_for_returns_to_its_letter() -> None:
    bench = Bench()
    (known,) = await bench.store.keep([bench.worker_letter("the first death")])
    before = (await bench.store.get([known.id]))[0].head.attempts
    bench.source.lineage = Lineage(letter_id=known.id, generation=1, campaign="c")
    await bench.rig.put("a")
    await asyncio.sleep(1.0)

    letter = await bench.run()

    assert letter.id == known.id
    assert (letter.head.code, letter.head.attempts) == ("RECEIVED_TOO_OFTEN", before + 3)


@virtually
async def test_another_body_under_a_known_id_becomes_its_own_letter() -> None:
    bench = Bench()
    other = bench.worker_letter()
    other = structs.replace(other, message=structs.replace(other.message, body=b"other"))
    (known,) = await bench.store.keep([other])
    await bench.rig.put("a")

    letter = await bench.run()
    await bench.rig.put("a")
    again = await bench.run()

    assert letter.id != known.id
    assert letter.head.conflict
    assert again == letter


def test_the_last_attempt_is_buried_where_it_would_be_retried() -> None:
    last = delivery(3, moves_to=DLQ)

    assert isinstance(last_word(Retry(60.0), last, failure()), Bury)
    assert isinstance(last_word(Retry(60.0, charged=False), last, failure()), Bury)
    assert last_word(Retry(60.0), delivery(3), failure()) == Retry(60.0)


def test_a_burial_is_left_to_the_broker_that_moves_to_the_same_mailbox() -> None:
    last = delivery(3, moves_to=DLQ)
    policy = DLQPolicy(max_attempts=3, backoff=Fixed(1.0), dead_queue="{mailbox}-dlq")

    assert is_left_to_broker(last, policy, None)
    assert is_left_to_broker(last, DLQPolicy(), None)
    assert not is_left_to_broker(last, policy, "other-dlq")
    assert not is_left_to_broker(delivery(3), policy, None)


def test_a_handler_that_asks_for_more_time_gets_none_after_the_last_receive() -> None:
    error = RetryLater(5.0, "later")

    assert isinstance(last_word(error.decision, delivery(3, moves_to=DLQ), failure()), Bury)
