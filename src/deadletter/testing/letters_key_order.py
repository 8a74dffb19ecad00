"""What an office promises about letters of one key: one after the other."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from deadletter.core.campaign import CampaignState, Care, Outcome, ReplayItem
from deadletter.core.letter import State
from deadletter.ports import LetterStore, ReplayTaken

from .fakes import START
from .letters_bench import ANNA, OfficeBench, a_campaign, a_letter, copy_that_died, settled


class KeyOrderContract(OfficeBench):
    """Campaigns over letters that have keys."""

    async def keyed(self, store: LetterStore, *keys: str | None) -> list[str]:
        """Keep a letter for each key, the oldest last; their ids, oldest first."""
        letters = [
            a_letter(key=key, sent_at=START + timedelta(seconds=n)) for n, key in enumerate(keys)
        ]
        ids = await self.kept(store, *reversed(letters))
        return ids[::-1]

    async def take(self, store: LetterStore, limit: int = 100) -> list[ReplayTaken]:
        """Take what may go now, and say that it was sent."""
        taken = await store.take_replay("c-1", limit=limit)
        await store.sent_replay("c-1", [one.letter_id for one in taken])
        return list(taken)

    async def counts(self, store: LetterStore) -> dict[Outcome, int]:
        """Return how many letters of the campaign have which outcome."""
        (campaign,) = await store.campaigns()
        return campaign.counts

    async def test_the_next_of_a_key_goes_when_the_one_before_it_is_confirmed(
        self, store: LetterStore
    ) -> None:
        a1, b1, a2, free, a3 = await self.keyed(store, "a", "b", "a", None, "a")
        await store.plan_replay(a_campaign(), [a3, free, a2, b1, a1])

        gone: list[list[str]] = []
        while taken := await self.take(store):
            assert await self.take(store) == []
            gone.append(_ids(taken))
            coming = await store.next_replay("c-1", limit=10)
            assert coming == []
            await store.settle_replays([settled(one, Outcome.CONFIRMED) for one in taken])

        assert gone == [[a1, b1, free], [a2], [a3]]
        assert await self.counts(store) == {Outcome.CONFIRMED: 5}
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert await self.is_sound(store)

    async def test_what_is_behind_a_letter_that_failed_is_held(self, store: LetterStore) -> None:
        a1, b1, a2, b2, a3 = await self.keyed(store, "a", "b", "a", "b", "a")
        await store.plan_replay(a_campaign(), [a1, b1, a2, b2, a3])
        first, other = await self.take(store)

        await store.keep([copy_that_died(first)])
        await store.settle_replays([settled(other, Outcome.CONFIRMED)])
        (last,) = await self.take(store)
        await store.settle_replays([settled(last, Outcome.CONFIRMED)])

        assert last.letter_id == b2
        assert await self.take(store) == []
        assert await self.counts(store) == {
            Outcome.CONFIRMED: 2,
            Outcome.FAILED: 1,
            Outcome.HELD: 2,
        }
        assert [await self.state(store, one) for one in (a1, a2, a3)] == [State.PENDING] * 3
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        (part,) = await store.replays([a3])
        assert part.outcome is Outcome.HELD
        assert await self.is_sound(store)

    async def test_a_letter_that_somebody_closed_does_not_keep_its_key_waiting(
        self, store: LetterStore
    ) -> None:
        a1, a2, a3 = await self.keyed(store, "a", "a", "a")
        await store.plan_replay(a_campaign(), [a1, a2, a3])
        await self.moved(store, a1, State.CLOSED)
        await store.purge([a2], ANNA)

        for _ in range(3):
            taken = await self.take(store)
            if taken:
                break

        assert _ids(taken) == [a3]
        assert await self.counts(store) == {Outcome.SKIPPED: 2, Outcome.SENT: 1}

    @pytest.mark.parametrize(
        ("new", "then"),
        [
            (State.CLOSED, {Outcome.UNCONFIRMED: 1, Outcome.SENT: 1}),
            (State.PENDING, {Outcome.UNCONFIRMED: 1, Outcome.HELD: 1}),
            (State.DISCARDED, {Outcome.UNCONFIRMED: 1, Outcome.HELD: 1}),
        ],
    )
    async def test_a_key_goes_on_behind_a_letter_nobody_waits_for_if_it_was_closed(
        self, store: LetterStore, new: State, then: dict[Outcome, int]
    ) -> None:
        a1, a2 = await self.keyed(store, "a", "a")
        await store.plan_replay(a_campaign(), [a1, a2])
        (first,) = await self.take(store)

        await self.moved(store, a1, new)
        await store.settle_replays([settled(first, Outcome.UNCONFIRMED)])
        await self.take(store)

        assert await self.counts(store) == then
        await store.settle_replays([settled(first, Outcome.CONFIRMED)])
        assert await self.take(store) == []
        assert await self.is_sound(store)

    async def test_letters_that_wait_for_their_turn_do_not_wait_for_an_outcome(
        self, store: LetterStore
    ) -> None:
        a1, a2, free = await self.keyed(store, "a", "a", None)
        await store.plan_replay(a_campaign(), [a1, a2, free])

        assert await store.waiting_since() == {}
        (first,) = await self.take(store, limit=1)
        assert await self.counts(store) == {Outcome.SENT: 1, Outcome.WAITING: 1, Outcome.PLANNED: 1}
        source = (await self.one(store, a1)).head.source
        assert (await store.counts())[source][State.REPLAYING] == 1
        await store.settle_replays([settled(first, Outcome.CONFIRMED)])
        assert await store.waiting_since() == {}

    async def test_past_the_cap_a_key_is_held(self, store: LetterStore) -> None:
        letters = [a_letter(key="a", replays=5), a_letter(key="a")]
        ids = await self.kept(store, *letters)
        await store.plan_replay(a_campaign(), ids)

        assert await self.take(store) == []

        assert await self.counts(store) == {Outcome.SKIPPED: 1, Outcome.HELD: 1}
        assert await self.state(store, ids[1]) is State.PENDING

    async def test_without_key_order_all_may_go_oldest_first(self, store: LetterStore) -> None:
        ids = await self.keyed(store, "a", "b", "a", None, "a")
        campaign = a_campaign(care=Care(key_order=False))
        await store.plan_replay(campaign, ids[::-1])

        assert _ids(await self.take(store)) == ids

    async def test_the_same_key_of_another_mailbox_is_another_key(self, store: LetterStore) -> None:
        letters = [a_letter(key="a"), a_letter(key="a", source="payments")]
        ids = await self.kept(store, *letters)
        await store.plan_replay(a_campaign(), ids)

        assert len(await self.take(store)) == 2

    async def test_keys_have_sizes_and_started_ones_go_first(self, store: LetterStore) -> None:
        a1, b1, a2, b2, a3 = await self.keyed(store, "a", "b", "a", "b", "a")
        await store.plan_replay(a_campaign(), [a1, b1, a2, b2, a3])

        before = await store.key_progress("c-1", limit=5)
        (first,) = await store.take_replay("c-1", limit=5, keys=1)
        started = await store.key_progress("c-1", limit=5)
        await store.settle_replays([settled(first, Outcome.CONFIRMED)])
        then = await store.take_replay("c-1", limit=5, keys=0)

        assert (before.behind, before.sizes) == (0, (3, 2))
        assert (started.behind, started.sizes) == (2, (2,))
        assert _ids(then) == [a2]

    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_waiting_letters_are_in_the_report(self, store: LetterStore, limit: int) -> None:
        ids = await self.keyed(store, "a", "a", None, "a")
        await store.plan_replay(a_campaign(), ids)
        await self.take(store)

        found: list[ReplayItem] = []
        after = 0
        while True:
            page = await store.campaign_items("c-1", after=after, limit=limit)
            found += page.items
            if page.after is None:
                break
            after = page.after

        assert sorted(one.letter_id for one in found) == sorted(ids)
        (part,) = await store.replays([ids[3]])
        assert part.outcome is Outcome.WAITING


def _ids(taken: Sequence[ReplayTaken]) -> list[str]:
    return [one.letter_id for one in taken]
