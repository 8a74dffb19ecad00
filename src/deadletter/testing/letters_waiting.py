"""What an office promises about letters that wait for the outcome of a replay."""

from datetime import timedelta

import pytest

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.letter import State
from deadletter.ports import LetterStore, Move

from .fakes import START, FakeClock
from .letters_bench import (
    ANNA,
    OfficeBench,
    a_campaign,
    a_letter,
    copy_that_died,
    settled,
)


class WaitingContract(OfficeBench):
    """Who waits is seen, may be put away, and hears of its copy all the same."""

    async def test_the_longest_wait_of_each_source_is_told(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        letters = [a_letter(source="orders"), a_letter(source="orders")]
        first, second = await self.kept(store, *letters)
        (other,) = await self.kept(store, a_letter(source="\ud800mail"))
        assert await store.waiting_since() == {}
        clock.advance(1.0)
        (taken,) = await self.taken(store, first)
        clock.advance(1.0)
        await self.taken(store, second, campaign=a_campaign("c-2"))
        clock.advance(1.0)
        await self.taken(store, other, campaign=a_campaign("c-3"))

        assert await store.waiting_since() == {
            "orders": START + timedelta(seconds=1),
            "\ud800mail": START + timedelta(seconds=3),
        }
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])
        assert (await store.waiting_since())["orders"] == START + timedelta(seconds=2)

    async def test_a_letter_that_was_sent_again_waits_since_then(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        (id_,) = await self.kept(store)
        source = (await self.one(store, id_)).head.source
        await self.taken(store, id_)
        await self.moved(store, id_, State.PENDING)
        assert await store.waiting_since() == {}
        clock.advance(60.0)

        await self.taken(store, id_, campaign=a_campaign("c-2"))

        assert await store.waiting_since() == {source: START + timedelta(seconds=60)}

    @pytest.mark.parametrize("new", [State.PENDING, State.CLOSED, State.DISCARDED])
    async def test_a_replay_ends_when_nobody_waits_for_its_last_copy(
        self, store: LetterStore, new: State
    ) -> None:
        (id_,) = await self.kept(store)
        await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        await self.moved(store, id_, new)

        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.UNCONFIRMED: 1}
        assert campaign.state is CampaignState.DONE
        assert await self.state(store, id_) is new
        assert await self.is_sound(store)

    @pytest.mark.parametrize(
        ("new", "then"),
        [
            (State.PENDING, State.REPLAYED),
            (State.CLOSED, State.CLOSED),
            (State.DISCARDED, State.DISCARDED),
        ],
    )
    async def test_a_copy_that_is_handled_after_all_is_recorded(
        self, store: LetterStore, new: State, then: State
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await self.moved(store, id_, new)

        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        (item,) = await store.replays([id_])
        assert item.outcome is Outcome.CONFIRMED
        assert await self.state(store, id_) is then
        assert await self.is_sound(store)

    @pytest.mark.parametrize("new", [State.PENDING, State.CLOSED, State.DISCARDED])
    async def test_a_copy_that_fails_after_all_opens_its_letter(
        self, store: LetterStore, new: State
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await self.moved(store, id_, new)

        await store.keep([copy_that_died(taken)])

        (item,) = await store.replays([id_])
        assert item.outcome is Outcome.FAILED
        assert item.confirmed_at is None
        assert await self.state(store, id_) is State.PENDING
        assert await self.is_sound(store)

    async def test_news_of_a_copy_before_the_last_leaves_the_letter_alone(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        (first,) = await self.taken(store, id_)
        await self.moved(store, id_, State.PENDING)
        await self.taken(store, id_, campaign=a_campaign("c-2"))

        await store.settle_replays([settled(first, Outcome.CONFIRMED)])

        assert await self.state(store, id_) is State.REPLAYING
        one, two = await store.replays([id_])
        assert (one.outcome, two.outcome) == (Outcome.CONFIRMED, Outcome.SENDING)

    async def test_a_letter_that_waits_cannot_become_reviewed(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        await self.taken(store, id_)

        review = Move(ids=(id_,), old=frozenset(State), new=State.REVIEWED)

        assert await store.move(review, ANNA) == []
