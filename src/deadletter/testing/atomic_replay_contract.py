"""Contracts of atomic replay and burial: all or nothing."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.errors import DeadLetterError
from deadletter.core.letter import DeadLetter, State
from deadletter.core.message import Delivery
from deadletter.ports import (
    Acked,
    AtomicBurial,
    AtomicReplay,
    Burial,
    Engine,
    Fate,
    Kept,
    LetterStore,
    Posted,
)

from .fakes import START, FakeClock
from .letters_bench import ANNA, a_letter
from .queue_bench import LEASE, MailboxBench, a_message, drained


class AtomicReplayContract(MailboxBench):
    """For engines whose mailboxes and office are one."""

    async def test_copies_are_there_as_they_were_and_recorded_as_sent(self, engine: Engine) -> None:
        letter = a_letter(
            b"\x00\xff body",
            headers=(("a", b"\xff"), ("a", b"2")),
            content_type="x/y",
            key="k",
            reply_to="answers",
            traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
        )
        await _planned(engine, letter)

        posted = await _atomic_replay(engine).send_back("c-1", limit=10)

        assert posted == Posted(1, len(letter.message.body))
        (copy,) = await _arrived(engine)
        lineage = copy.message.lineage
        assert lineage is not None
        assert (lineage.letter_id, lineage.generation) == (letter.id, 1)
        assert lineage.campaign == "c-1"
        for name in ("id", "body", "headers", "content_type", "key", "reply_to"):
            assert getattr(copy.message, name) == getattr(letter.message, name)
        (kept,) = await _office(engine).get([letter.id])
        assert (kept.head.state, kept.head.replays) == (State.REPLAYING, 1)
        assert await _counts(engine) == {Outcome.SENT: 1}

    async def test_texts_that_nobody_could_send_go_all_the_same(self, engine: Engine) -> None:
        # Half a character, or a NUL, in what came from a foreign broker.
        letters = [
            a_letter(),
            a_letter(id="odd-\ud800", headers=(("h\udc80", b"me"),), key="k\udfff"),
            a_letter(id="\0\ufdd0", content_type="t\udc80", reply_to="r\udc80"),
            a_letter(id="x" * 8192, key="é" * 4096),
        ]
        await _planned(engine, *letters)

        await _atomic_replay(engine).send_back("c-1", limit=10)

        found = [copy.message for copy in await _arrived(engine)]
        by_id = {copy.id: copy for copy in found}
        copies = [by_id[letter.message.id] for letter in letters]
        assert [replace(copy, lineage=None) for copy in copies] == [
            letter.message for letter in letters
        ]
        assert [m.lineage and m.lineage.letter_id for m in copies] == [
            letter.id for letter in letters
        ]

    async def test_no_more_than_asked_for_go_at_once_in_order(self, engine: Engine) -> None:
        letters = [a_letter() for _ in range(5)]
        await _planned(engine, *letters)

        sent = [await _atomic_replay(engine).send_back("c-1", limit=2) for _ in range(4)]

        assert [posted.letters for posted in sent] == [2, 2, 1, 0]
        found = [copy.message.id for copy in await _arrived(engine)]
        assert found == [letter.message.id for letter in letters]

    async def test_those_that_were_taken_and_not_sent_go_first_as_the_same_copy(
        self, engine: Engine
    ) -> None:
        letters = [a_letter() for _ in range(3)]
        await _planned(engine, *letters)
        (taken,) = await _office(engine).take_replay("c-1", limit=1)

        await _atomic_replay(engine).send_back("c-1", limit=10)

        copies = await _arrived(engine)
        assert copies[0].message.id == taken.message.id
        assert {copy.message.generation for copy in copies} == {1}
        assert await _counts(engine) == {Outcome.SENT: 3}

    async def test_what_is_past_the_cap_is_quarantined_and_stays(self, engine: Engine) -> None:
        worn, fresh = a_letter(replays=2), a_letter()
        await _planned(engine, worn, fresh, cap=2)

        posted = await _atomic_replay(engine).send_back("c-1", limit=10)

        assert posted.letters == 1
        (copy,) = await _arrived(engine)
        assert copy.message.id == fresh.message.id
        (kept,) = await _office(engine).get([worn.id])
        assert kept.head.state is State.QUARANTINED

    async def test_each_letter_goes_to_where_it_died(self, engine: Engine) -> None:
        letters = [a_letter(source=name) for name in ("a", "b", "a", "c", "b", "a")]
        closed = a_letter(source="b", state=State.CLOSED)
        await engine.broker.sink("a").send([a_letter().message])  # it is there already
        await drained(engine.broker.source("a"))
        await _planned(engine, closed, *letters)

        first = await _atomic_replay(engine).send_back("c-1", limit=4)
        rest = await _atomic_replay(engine).send_back("c-1", limit=4)

        assert (first.letters, rest.letters) == (4, 2)
        for name in ("a", "b", "c"):
            found = [copy.message.id for copy in await _arrived(engine, of=name)]
            assert found == [one.message.id for one in letters if one.head.source == name]
        assert await _counts(engine) == {Outcome.SENT: 6, Outcome.SKIPPED: 1}
        assert not await _office(engine).verify()

    async def test_a_campaign_may_send_elsewhere(self, engine: Engine) -> None:
        await _planned(engine, a_letter(), to="elsewhere")

        await _atomic_replay(engine).send_back("c-1", limit=10)

        assert await _arrived(engine) == []
        assert len(await _arrived(engine, of="elsewhere")) == 1

    async def test_a_paused_campaign_sends_nothing(self, engine: Engine) -> None:
        await _planned(engine, a_letter())
        await _office(engine).set_campaign("c-1", CampaignState.PAUSED, ANNA)

        assert await _atomic_replay(engine).send_back("c-1", limit=10) == Posted()

        assert await _arrived(engine) == []

    async def test_only_an_expiry_still_to_come_is_kept(self, engine: Engine) -> None:
        past = a_letter(expires_at=START - timedelta(seconds=1))
        future = a_letter(expires_at=START + timedelta(days=400))
        await _planned(engine, past, future)

        await _atomic_replay(engine).send_back("c-1", limit=10)

        first, second = await _arrived(engine)
        assert first.message.expires_at is None
        assert second.message.expires_at == future.message.expires_at

    async def test_whoever_waits_is_woken(self, engine: Engine) -> None:
        await _planned(engine, a_letter())
        source = engine.broker.source("orders")
        assert not await source.receive(limit=1, wait=0, lease=30.0)

        await _atomic_replay(engine).send_back("c-1", limit=10)

        assert await source.receive(limit=1, wait=self.patience, lease=30.0)

    async def test_an_unknown_campaign_is_said_so(self, engine: Engine) -> None:
        with pytest.raises(DeadLetterError, match="no campaign"):
            await _atomic_replay(engine).send_back("nowhere", limit=10)


async def _planned(engine: Engine, *letters: DeadLetter, **more: Any) -> None:
    await _office(engine).keep(letters)
    campaign = Campaign(
        id="c-1", query="is:pending", created_at=START, actor="anna", **{"cap": 5} | more
    )
    ids = [letter.id for letter in letters]
    await _office(engine).plan_replay(campaign, ids)


async def _arrived(engine: Engine, *, of: str = "orders") -> Sequence[Delivery]:
    return await drained(engine.broker.source(of))


async def _counts(engine: Engine) -> dict[Outcome, int]:
    (campaign,) = await _office(engine).campaigns()
    return {outcome: n for outcome, n in campaign.counts.items() if n}


def _atomic_replay(engine: Engine) -> AtomicReplay:
    assert engine.atomic_replay is not None
    return engine.atomic_replay


def _office(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters


class AtomicBurialContract(MailboxBench):
    """For engines whose mailboxes and office are one."""

    async def test_a_letter_of_ours_is_kept_and_its_delivery_stays_ours(
        self, engine: Engine
    ) -> None:
        await self.sent(engine, a_message(b"hello"))
        delivery = await self.received(engine)

        (kept,) = await _atomic_burial(engine).bury([_burial(delivery)])

        assert isinstance(kept, Kept)
        (letter,) = await _burial_contract_office(engine).get([kept.id])
        assert letter.message.body == b"hello"
        source = engine.broker.source("orders")
        assert await source.settle([Acked(delivery, Fate.BURIED)]) == [True]

    async def test_what_is_not_ours_any_more_leaves_no_letter(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine, *(a_message() for _ in range(3)))
        lost, *ours = await _take(engine, 3)
        assert await engine.broker.source("orders").settle([Acked(lost)]) == [True]

        answers = await _atomic_burial(engine).bury(
            [_burial(ours[0]), _burial(lost), _burial(ours[1])]
        )

        assert [answer is not None for answer in answers] == [True, False, True]
        page = await _burial_contract_office(engine).find()
        assert {head.message_id for head in page.heads} == {
            delivery.message.id for delivery in ours
        }

    async def test_a_lease_that_ran_out_is_not_ours(self, engine: Engine, clock: FakeClock) -> None:
        await self.sent(engine)
        delivery = await self.received(engine, lease=1.0)
        await self.pass_time(clock, 1.5)

        assert await _atomic_burial(engine).bury([_burial(delivery)]) == [None]
        assert not (await _burial_contract_office(engine).find()).heads

    async def test_what_somebody_else_holds_is_not_ours(
        self, engine: Engine, clock: FakeClock
    ) -> None:
        await self.sent(engine)
        mine = await self.received(engine)
        await self.pass_time(clock, LEASE + 1)
        await engine.broker.sweep()
        theirs = await self.received(engine, alone=True)

        assert await _atomic_burial(engine).bury([_burial(mine)]) == [None]
        (kept,) = await _atomic_burial(engine).bury([_burial(theirs)])
        assert kept is not None

    async def test_burying_nothing_is_fine(self, engine: Engine) -> None:
        assert list(await _atomic_burial(engine).bury([])) == []


async def _take(engine: Engine, count: int) -> Sequence[Delivery]:
    source = engine.broker.source("orders")
    taken = await source.receive(limit=count, wait=0, lease=LEASE)
    assert len(taken) == count
    return taken


def _burial(delivery: Delivery) -> Burial:
    message = delivery.message
    return Burial(delivery, a_letter(message.body, message_id=message.id))


def _atomic_burial(engine: Engine) -> AtomicBurial:
    assert engine.atomic_burial is not None
    return engine.atomic_burial


def _burial_contract_office(engine: Engine) -> LetterStore:
    assert engine.letters is not None
    return engine.letters
