"""What an undertaker promises: no letter of what is somebody else's."""

from collections.abc import Sequence

from deadletter.core.message import Delivery
from deadletter.ports import Acked, Burial, Engine, Fate, Kept, LetterStore, Undertaker

from .fakes import FakeClock
from .letters_bench import a_letter
from .queue_bench import LEASE, MailboxBench, a_message


class UndertakerContract(MailboxBench):
    """For engines whose mailboxes and office are one."""

    async def test_a_letter_of_ours_is_kept_and_its_delivery_stays_ours(
        self, engine: Engine
    ) -> None:
        await self.sent(engine, a_message(b"hello"))
        delivery = await self.received(engine)

        (kept,) = await _undertaker(engine).bury([_burial(delivery)])

        assert isinstance(kept, Kept)
        (letter,) = await _office(engine).get([kept.id])
        assert letter.message.body == b"hello"
        source = engine.broker.source("orders")
        assert await source.settle([Acked(delivery, Fate.BURIED)]) == [True]

    async def test_what_is_not_ours_any_more_leaves_no_letter(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(3)))
        lost, *ours = await _take(engine, 3)
        assert await engine.broker.source("orders").settle([Acked(lost)]) == [True]

        answers = await _undertaker(engine).bury(
            [_burial(ours[0]), _burial(lost), _burial(ours[1])]
        )

        assert [answer is not None for answer in answers] == [True, False, True]
        page = await _office(engine).find()
        assert {head.message_id for head in page.heads} == {
            delivery.message.id for delivery in ours
        }

    async def test_a_lease_that_ran_out_is_not_ours(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        delivery = await self.received(engine, lease=1.0)
        await self.pass_time(clock, 1.5)

        assert await _undertaker(engine).bury([_burial(delivery)]) == [None]
        assert not (await _office(engine).find()).heads

    async def test_what_somebody_else_holds_is_not_ours(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        mine = await self.received(engine)
        await self.pass_time(clock, LEASE + 1)
        await engine.broker.sweep()
        theirs = await self.received(engine, alone=True)

        assert await _undertaker(engine).bury([_burial(mine)]) == [None]
        (kept,) = await _undertaker(engine).bury([_burial(theirs)])
        assert kept is not None

    async def test_burying_nothing_is_fine(self, engine: Engine) -> None:
        assert list(await _undertaker(engine).bury([])) == []


async def _take(engine: Engine, count: int) -> Sequence[Delivery]:
    source = engine.broker.source("orders")
    taken = await source.receive(limit=count, wait=0, lease=LEASE)
    assert len(taken) == count
    return taken


def _burial(delivery: Delivery) -> Burial:
    message = delivery.message
    return Burial(delivery, a_letter(message.body, message_id=message.id))


def _undertaker(engine: Engine) -> Undertaker:
    assert engine.undertaker is not None
    return engine.undertaker


def _office(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters
