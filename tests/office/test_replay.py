import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import structs

from deadletter.core.campaign import Campaign, CampaignState, Outcome, Verdict
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Message
from deadletter.office.letters import Letters
from deadletter.office.replay import Replay
from deadletter.ports import Engine, LedgerKey, LedgerState, LetterStore, ReplaySettled
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, SeededDice
from office.making import BY, NOW, make_letter, make_letters
from office.sending import confirm, received


async def test_a_copy_is_the_message_as_it_was(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    letter = make_letter(
        body=b"\x00\xff odd",
        headers={"tenant": b"\xfe\x00", "x": "y"},
        key="k",
        idempotency_key="order-1",
    )
    await store.keep([letter])

    campaign = await replay.start("is:pending", BY)
    await replay.run(campaign.id)

    (delivery,) = await received(engine)
    assert structs.replace(delivery.message, lineage=None) == letter.message
    lineage = delivery.message.lineage
    assert lineage is not None
    assert (lineage.letter_id, lineage.generation) == (letter.id, 1)
    assert lineage.campaign == campaign.id


async def test_a_letter_is_replayed_only_when_its_consumer_says_so(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([letter := make_letter()])
    campaign = await replay.start("*", BY)

    campaign = await replay.run(campaign.id)
    assert campaign.counts == {Outcome.SENT: 1}
    assert (await store.get([letter.id]))[0].head.state is State.REPLAYING
    await confirm(store, await received(engine))

    campaign = await replay.status(campaign.id)
    assert campaign.state is CampaignState.DONE
    assert campaign.counts == {Outcome.CONFIRMED: 1}
    assert (await store.get([letter.id]))[0].head.state is State.REPLAYED


async def test_each_letter_goes_to_the_mailbox_it_came_from(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([make_letter(1), make_letter(2, source="payments")])
    campaign = await replay.start("*", BY)

    await replay.run(campaign.id)

    assert [one.message.id for one in await received(engine)] == ["m-1"]
    assert [one.message.id for one in await received(engine, "payments")] == ["m-2"]


async def test_all_letters_go_elsewhere_if_told_so(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([make_letter(1), make_letter(2, source="payments")])
    campaign = await replay.start("*", BY, to="orders.fixed")

    await replay.run(campaign.id)

    assert len(await received(engine, "orders.fixed")) == 2


async def test_letters_that_die_later_are_not_part_of_a_replay(
    replay: Replay, store: LetterStore
) -> None:
    await store.keep(make_letters(3))
    campaign = await replay.start("is:pending", BY)
    await store.keep([make_letter(99)])

    campaign = await replay.run(campaign.id)

    assert campaign.counts == {Outcome.SENT: 3}


async def test_many_letters_are_sent_each_once(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep(make_letters(1_203))
    progress: list[int] = []
    campaign = await replay.start("*", BY)

    await replay.run(campaign.id, on_progress=progress.append)

    ids = [one.message.id for one in await received(engine)]
    assert len(ids) == len(set(ids)) == sum(progress) == 1_203


async def test_a_selection_of_another_size_than_agreed_is_refused(
    replay: Replay, store: LetterStore
) -> None:
    await store.keep(make_letters(3))

    with pytest.raises(Conflict, match="3 letters match now, not 2"):
        await replay.start("*", BY, expect=2)

    assert await replay.latest() == []


async def test_nothing_to_replay_is_said(replay: Replay) -> None:
    with pytest.raises(NotFound, match="nothing to replay"):
        await replay.start("is:pending", BY)


@pytest.mark.parametrize("wrong", [{"cap": 0}, {"rate": 0.0}, {"rate": -1.0}])
async def test_invalid_replays_are_rejected(
    replay: Replay, store: LetterStore, wrong: dict[str, float]
) -> None:
    await store.keep([make_letter()])

    with pytest.raises(ConfigError):
        await replay.start("*", BY, **wrong)  # type: ignore[arg-type]


async def test_a_cancelled_replay_leaves_the_rest_as_it_is(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([letter := make_letter()])
    campaign = await replay.start("*", BY)

    await replay.cancel(campaign.id, BY)
    await replay.run(campaign.id)

    assert await received(engine) == []
    assert (await store.get([letter.id]))[0].head.state is State.PENDING
    with pytest.raises(Conflict, match="cancelled"):
        await replay.resume(campaign.id, BY)


async def test_the_cap_quarantines_instead_of_sending(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([letter := make_letter(replays=3)])
    campaign = await replay.start("*", BY, cap=3)

    campaign = await replay.run(campaign.id)

    assert campaign.counts == {Outcome.SKIPPED: 1}
    assert await received(engine) == []
    assert (await store.get([letter.id]))[0].head.state is State.QUARANTINED


async def test_a_copy_loses_an_expiry_that_is_over_and_no_other(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    past = NOW - timedelta(hours=1)
    coming = NOW + timedelta(hours=1)
    await store.keep(
        [
            make_letter(1, expires_at=past),
            make_letter(2, expires_at=NOW),
            make_letter(3, expires_at=coming),
        ]
    )
    campaign = await replay.start("*", BY)

    sent: list[Message] = []
    catching = Replay(store, Catching(sent), FakeClock(NOW), SeededDice())  # type: ignore[arg-type]
    await catching.run(campaign.id)

    assert {one.id: one.expires_at for one in sent} == {"m-1": None, "m-2": None, "m-3": coming}
    (letter,) = await store.get([make_letter(1).id])
    assert letter.message.expires_at == past


class Catching:
    """A broker that shows what was sent."""

    def __init__(self, sent: list[Message]) -> None:
        self._sent = sent

    def sink(self, mailbox: str) -> "Catching":
        return self

    async def send(self, messages: Sequence[Message]) -> None:
        self._sent.extend(messages)


async def test_preflight_has_a_verdict_for_every_letter(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    assert engine.ledger is not None
    await engine.broker.sink("orders").send([Message(id="other", body=b"", sent_at=NOW)])
    claims = await engine.ledger.begin([LedgerKey("orders", "done")], lease=60)
    await engine.ledger.finish([(claims[0], LedgerState.PROCESSED)], ttl=600)
    letters = {
        Verdict.READY: make_letters(5),
        Verdict.WRONG_STATE: [make_letter(11, state=State.CLOSED)],
        Verdict.PAST_CAP: [make_letter(12, replays=5)],
        Verdict.PROCESSED: [make_letter(13, idempotency_key="done")],
        Verdict.EXPIRED: [make_letter(14, expires_at=NOW - timedelta(seconds=1))],
        Verdict.NO_MAILBOX: [make_letter(15, source="gone")],
        Verdict.CREDENTIALS: [make_letter(17, headers={"Authorization": "x"})],
        Verdict.ORDERED: [make_letter(16, key="customer-7")],
    }
    await store.keep([one for some in letters.values() for one in some])

    plan = await replay.plan("*")

    assert plan.verdicts == {verdict: len(some) for verdict, some in letters.items()}
    assert plan.total == 12
    assert plan.sendable == 9
    assert plan.samples[Verdict.EXPIRED] == (letters[Verdict.EXPIRED][0].id,)
    assert plan.sources == {"orders": 11, "gone": 1}
    assert plan.targets == {"orders": 8, "gone": 1}
    assert plan.states == {State.PENDING: 11, State.CLOSED: 1}
    assert await received(engine) != []  # only the other one is there
    assert await replay.latest() == []


async def test_waiting_ends_when_every_copy_has_an_outcome(
    replay: Replay, engine: Engine, store: LetterStore
) -> None:
    await store.keep([make_letter()])
    campaign = await replay.start("*", BY)
    await replay.run(campaign.id)

    async def consumer() -> None:
        await confirm(store, await received(engine))

    done, _ = await asyncio.gather(replay.wait_confirmed(campaign.id, timeout=60), consumer())

    assert done.counts == {Outcome.CONFIRMED: 1}


async def test_waiting_ends_when_the_time_is_over(
    replay: Replay, store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([make_letter()])
    campaign = await replay.start("*", BY)
    await replay.run(campaign.id)

    def look(now: Campaign) -> None:
        clock.advance(30)

    left = await replay.wait_confirmed(campaign.id, timeout=60, on_look=look)

    assert left.counts == {Outcome.SENT: 1}


async def test_a_rate_is_honoured(engine: Engine, store: LetterStore, dice: SeededDice) -> None:
    await store.keep(make_letters(12))
    replay = Replay(store, engine.broker, SystemClock(), dice)
    campaign = await replay.start("*", BY, rate=60)
    loop = asyncio.get_running_loop()
    begun = loop.time()

    await replay.run(campaign.id)

    assert loop.time() - begun >= 0.09  # two slices of six, a tenth of a second each


async def test_replays_are_found_by_the_beginning_of_their_id(
    replay: Replay, store: LetterStore
) -> None:
    await store.keep(make_letters(2))
    first = await replay.start("message:m-1", BY)
    second = await replay.start("message:m-2", BY)

    assert (await replay.status(first.id.upper())).id == first.id
    assert (await replay.status(second.id)).query == "message:m-2"
    with pytest.raises(NotFound):
        await replay.status("nothing")
    with pytest.raises(Conflict, match="2 replays"):
        await replay.status(first.id[:3])


async def test_a_letter_that_fails_again_comes_back_to_itself(
    replay: Replay, engine: Engine, store: LetterStore, clock: FakeClock
) -> None:
    await store.keep([letter := make_letter()])
    campaign = await replay.start("*", BY)
    await replay.run(campaign.id)
    (delivery,) = await received(engine)

    again = make_letter(error_text="still no answer", died=timedelta())
    again = DeadLetter(head=again.head, message=delivery.message, history=again.history)
    await store.keep([again])
    await store.settle_replays([ReplaySettled(letter.id, 1, Outcome.FAILED)])

    (back,) = await store.get([letter.id])
    assert back.head.state is State.PENDING
    assert back.head.error_text == "still no answer"
    assert (await replay.status(campaign.id)).counts == {Outcome.FAILED: 1}
    assert sum((await Letters(store, clock).counts())["orders"].values()) == 1
