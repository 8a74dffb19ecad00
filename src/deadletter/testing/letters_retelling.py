"""What an office promises about the past: what campaigns did with a letter."""

from datetime import timedelta

from msgspec.structs import replace

from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.letter import State
from deadletter.ports import LetterStore

from .fakes import START, FakeClock
from .letters_bench import OfficeBench, a_campaign, a_letter, copy_that_died, settled


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
