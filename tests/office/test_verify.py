from collections.abc import Sequence

from msgspec import structs

from deadletter.core.attempts import Attempt, append
from deadletter.core.message import Lineage, Message
from deadletter.office.replay import Replay
from deadletter.office.verify import verify
from deadletter.ports import Acked, Broker, Engine, Fate, LetterStore, QueueInfo
from office.making import BY, NOW, make_letter, make_letters


async def bury(engine: Engine, number: int) -> None:
    """Send a message and bury it the way a worker does."""
    assert engine.letters is not None
    message = Message(id=f"m-{number}", body=b"{}", sent_at=NOW)
    await engine.broker.sink("orders").send([message])
    source = engine.broker.source("orders")
    (delivery,) = await source.receive(limit=1, wait=0, lease=60)
    await engine.letters.keep([make_letter(number, body=b"{}")])
    await source.settle([Acked(delivery, Fate.BURIED)])


async def test_verify_reconciles_received_with_settled_and_remaining(engine: Engine) -> None:
    await bury(engine, 1)
    message = Message(id="m-2", body=b"", sent_at=NOW)
    await engine.broker.sink("orders").send([message], delay=60)

    found = await verify(engine.broker, engine.letters)

    assert found.ok, found.findings
    (line,) = found.mailboxes
    assert (line.sent, line.left, line.present, line.buried) == (2, 1, 1, 1)
    assert found.letters == 1


async def test_an_empty_engine_adds_up(engine: Engine) -> None:
    assert (await verify(engine.broker, engine.letters)).ok


async def test_a_purged_letter_is_not_missing(engine: Engine, store: LetterStore) -> None:
    await bury(engine, 1)
    await store.purge([make_letter(1).id], BY)

    found = await verify(engine.broker, store)

    assert found.ok, found.findings


async def test_a_replay_of_a_thousand_letters_adds_up(
    engine: Engine, store: LetterStore, replay: Replay
) -> None:
    await store.keep(make_letters(1_000))

    await replay.start("*", BY)

    found = await verify(engine.broker, store)
    assert found.ok, found.findings


class Doctored:
    """A broker whose counts somebody has changed."""

    def __init__(self, broker: Broker, **tally: int) -> None:
        self._broker = broker
        self._tally = tally
        self.features = broker.features

    async def queues(self) -> Sequence[QueueInfo]:
        return [
            structs.replace(queue, tally={**queue.tally, **self._tally})
            for queue in await self._broker.queues()
        ]


async def test_a_message_that_vanished_is_found(engine: Engine) -> None:
    await bury(engine, 1)

    found = await verify(Doctored(engine.broker, sent=4), engine.letters)  # type: ignore[arg-type]

    assert not found.ok
    assert "3 messages are missing (4 sent, 1 left it, 0 are in it)" in (found.findings[0])


async def test_a_message_from_nowhere_is_found(engine: Engine) -> None:
    await bury(engine, 1)

    found = await verify(Doctored(engine.broker, handled=2), engine.letters)  # type: ignore[arg-type]

    assert "2 more than were ever sent" in found.findings[0]


async def test_a_burial_without_a_letter_is_found(engine: Engine) -> None:
    await bury(engine, 1)

    found = await verify(Doctored(engine.broker, buried=3, sent=3), engine.letters)  # type: ignore[arg-type]

    assert any("2 letters are missing" in finding for finding in found.findings)


async def test_a_letter_that_died_elsewhere_is_not_missing(
    engine: Engine, store: LetterStore
) -> None:
    await bury(engine, 1)
    letter = make_letter(1, body=b"{}")
    lineage = Lineage(letter_id=letter.id, generation=1, campaign="c")
    copy = structs.replace(letter.message, lineage=lineage)
    await engine.broker.sink("orders.fixed").send([copy])
    source = engine.broker.source("orders.fixed")
    (delivery,) = await source.receive(limit=1, wait=0, lease=60)
    attempt = Attempt(number=1, at=NOW, generation=1)
    history = append(letter.history, attempt)
    await store.keep([structs.replace(letter, message=copy, history=history)])
    await source.settle([Acked(delivery, Fate.BURIED)])

    found = await verify(engine.broker, store)

    assert found.ok, found.findings


async def test_where_nobody_counts_messages_only_letters_are_added_up(engine: Engine) -> None:
    await bury(engine, 1)
    broker = Doctored(engine.broker, sent=4)
    broker.features = structs.replace(broker.features, tallies=False)

    found = await verify(broker, engine.letters)  # type: ignore[arg-type]

    assert found.ok
    assert (found.mailboxes, found.letters) == ((), 1)


async def test_conflicts_are_named_and_nothing_is_missing(
    engine: Engine, store: LetterStore
) -> None:
    await store.keep([make_letter(1, body=b"one"), make_letter(1, body=b"two")])
    letters = [make_letter(2, body=b"%d" % n) for n in range(30)]
    await store.keep(letters)

    found = await verify(engine.broker, store)

    assert found.ok, found.findings
    assert (found.conflicts.total, found.conflicts.open) == (30, 30)
    assert len(set(found.conflicts.ids)) == 20
    assert all(one.head.conflict for one in await store.get(found.conflicts.ids))
