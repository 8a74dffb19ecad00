"""What an office promises about the past: what campaigns did with a letter."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState, Outcome, ReplayItem
from deadletter.core.errors import NotFound
from deadletter.core.letter import State
from deadletter.ports import LetterStore

from .fakes import START, FakeClock
from .letters_bench import (
    ANNA,
    OfficeBench,
    a_campaign,
    a_letter,
    copy_that_died,
    settled,
)


class RetellingContract(OfficeBench):
    """Every part a letter had in a campaign can be read again."""

    async def test_a_replay_is_remembered_with_its_times(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        (id_,) = await self.kept(store)
        campaign = replace(a_campaign(), to="canary", reason="fixed in 1.8")
        clock.advance(1.0)
        (taken,) = await self.taken(store, id_, campaign=campaign)
        clock.advance(1.0)
        await store.sent_replay("c-1", [id_])
        clock.advance(1.0)

        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        assert await store.replays([id_]) == [
            ReplayItem(
                letter_id=id_,
                campaign="c-1",
                actor=campaign.actor,
                reason="fixed in 1.8",
                to="canary",
                generation=1,
                outcome=Outcome.CONFIRMED,
                taken_at=START + timedelta(seconds=1),
                sent_at=START + timedelta(seconds=2),
                settled_at=START + timedelta(seconds=3),
            )
        ]

    async def test_a_copy_that_died_is_remembered_beside_the_next(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])
        clock.advance(5.0)
        await store.keep([copy_that_died(taken)])
        clock.advance(5.0)

        await self.taken(store, id_, campaign=a_campaign("c-2"))

        first, second = await store.replays([id_])
        assert (first.campaign, first.generation) == ("c-1", 1)
        assert (first.outcome, first.settled_at) == (
            Outcome.FAILED,
            START + timedelta(seconds=5),
        )
        assert (second.campaign, second.generation) == ("c-2", 2)
        assert (second.outcome, second.settled_at) == (Outcome.SENDING, None)
        assert second.taken_at == START + timedelta(seconds=10)

    async def test_what_was_taken_again_was_taken_when_it_was_taken_first(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        (id_,) = await self.kept(store)
        await self.taken(store, id_)  # and then a crash
        clock.advance(60.0)

        await store.take_replay("c-1", limit=1)

        (item,) = await store.replays([id_])
        assert (item.taken_at, item.sent_at) == (START, None)

    async def test_what_was_skipped_or_only_planned_is_told_as_well(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        closed, pending = await self.kept(
            store, a_letter(state=State.CLOSED), a_letter()
        )
        await store.plan_replay(a_campaign(), [closed])
        await store.plan_replay(a_campaign("c-2"), [pending])
        clock.advance(1.0)
        await store.take_replay("c-1", limit=5)

        planned, skipped = await store.replays([pending, "?", closed])

        assert (planned.letter_id, planned.outcome) == (pending, Outcome.PLANNED)
        assert (skipped.letter_id, skipped.outcome) == (closed, Outcome.SKIPPED)
        assert (skipped.generation, skipped.taken_at) == (0, None)
        assert skipped.settled_at == START + timedelta(seconds=1)

    async def test_a_letter_that_was_never_replayed_has_nothing_to_tell(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)

        assert await store.replays([id_]) == []
        assert await store.replays([]) == []

    async def test_a_campaigns_letters_are_told_page_by_page(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, a_letter(), a_letter(), a_letter())
        await store.plan_replay(a_campaign(), ids)
        (taken,) = await store.take_replay("c-1", limit=1)
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        first = await store.campaign_items("c-1", limit=2)
        assert first.after is not None
        last = await store.campaign_items("c-1", after=first.after, limit=2)

        told = [(item.letter_id, item.outcome) for item in first.items + last.items]
        assert told == [
            (ids[0], Outcome.CONFIRMED),
            (ids[1], Outcome.PLANNED),
            (ids[2], Outcome.PLANNED),
        ]
        assert last.after is None

    async def test_letters_purged_since_leave_a_gap_in_the_report(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, a_letter(), a_letter())
        await store.plan_replay(a_campaign(), ids)
        await store.purge(ids[:1], ANNA)

        first = await store.campaign_items("c-1", limit=1)
        assert first.after is not None
        last = await store.campaign_items("c-1", after=first.after, limit=1)

        assert first.items == ()
        assert [item.letter_id for item in last.items] == [ids[1]]

    async def test_there_is_nothing_to_tell_of_a_campaign_that_never_was(
        self, store: LetterStore
    ) -> None:
        with pytest.raises(NotFound):
            await store.campaign_items("c-9")

    async def test_what_is_only_planned_is_not_sent_before_somebody_says_so(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, a_letter())
        await store.plan_replay(a_campaign(state=CampaignState.PLANNED), ids)

        before = await store.take_replay("c-1", limit=1)
        await store.set_campaign("c-1", CampaignState.RUNNING, ANNA)
        after = await store.take_replay("c-1", limit=1)

        assert [len(before), len(after)] == [0, 1]
