from datetime import timedelta

from deadletter.core.campaign import Campaign
from deadletter.core.letter import State
from deadletter.core.message import Message
from deadletter.office.stats import collect
from deadletter.ports import Acked, Engine, LetterStore
from deadletter.testing.fakes import START, FakeClock
from deadletter.testing.letters_bench import copy_that_died
from office.making import NOW, make_letter


async def test_everything_is_counted(engine: Engine, store: LetterStore, clock: FakeClock) -> None:
    sink = engine.broker.sink("orders")
    await sink.send([Message(id=f"m-{n}", body=b"", sent_at=NOW) for n in range(3)])
    source = engine.broker.source("orders")
    deliveries = await source.receive(limit=2, wait=0, lease=60)
    await source.settle([Acked(deliveries[0])])
    await store.keep(
        [
            make_letter(1),
            make_letter(2, died=timedelta(hours=3)),
            make_letter(3, died=timedelta(days=3), state=State.CLOSED),
        ]
    )

    stats = await collect(engine.broker, store, clock)

    (line,) = stats.mailboxes
    assert (line.ready, line.claimed, line.sent, line.handled) == (1, 1, 3, 1)
    assert stats.letters == {State.PENDING: 2, State.CLOSED: 1}
    assert stats.open == 2
    assert [one.count for one in stats.arrivals] == [1, 2]
    assert not any(one.at_least for one in stats.arrivals)


async def test_a_letter_that_died_again_counts_as_two_deaths(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    letter, other = make_letter(1, died=timedelta(hours=2)), make_letter(2)
    await store.keep([letter, other])
    campaign = Campaign(id="c-1", query="*", created_at=NOW, actor="anna")
    await store.plan_replay(campaign, [letter.id])
    (taken,) = await store.take_replay("c-1", limit=1)
    later = (NOW - timedelta(minutes=1) - START).total_seconds()
    await store.keep([copy_that_died(taken, later=later)])

    stats = await collect(engine.broker, store, clock)

    assert stats.letters == {State.PENDING: 2}
    assert [one.count for one in stats.arrivals] == [2, 3]


async def test_an_empty_engine_has_nothing_to_count(
    engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    stats = await collect(engine.broker, store, clock)

    assert stats.mailboxes == ()
    assert stats.letters == {}
