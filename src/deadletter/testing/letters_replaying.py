"""Contracts of replays: each copy sent once, each outcome known."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState, Care, Outcome
from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.letter import State
from deadletter.core.message import Lineage
from deadletter.ports import LetterStore

from .fakes import START
from .letters_bench import (
    ANNA,
    OfficeBench,
    a_campaign,
    a_letter,
    copy_that_died,
    settled,
    tried_again,
)


class ReplayingContract(OfficeBench):
    """Campaigns, from the plan to the last outcome."""

    async def test_letters_are_taken_oldest_sent_first(self, store: LetterStore) -> None:
        letters = [
            a_letter(bytes([n]) * n * 5000, sent_at=START - timedelta(seconds=n)) for n in range(6)
        ]
        ids = await self.kept(store, *letters)
        await store.plan_replay(a_campaign(), [*ids, ids[0], "?"])

        first = await store.take_replay("c-1", limit=4)
        await store.sent_replay("c-1", [taken.letter_id for taken in first])
        rest = await store.take_replay("c-1", limit=4)

        taken = [*first, *rest]
        assert [one.letter_id for one in taken] == ids[::-1]
        assert [one.message for one in taken] == [letter.message for letter in reversed(letters)]
        assert {one.generation for one in taken} == {1}
        assert {one.source for one in taken} == {"orders"}
        assert await store.counts() == {"orders": {State.REPLAYING: 6}}
        assert await self.is_sound(store)

    async def test_positions_order_what_was_sent_at_the_same_time(self, store: LetterStore) -> None:
        places = ["orders/0/10", "orders/0/9", None, "orders/0/100"]
        letters = [replace(a_letter(), position=place) for place in places]
        ids = await self.kept(store, *letters)

        ordered = await store.sent_order([*ids, "?", ids[0]])
        taken = await self.taken(store, *ids)

        assert ordered == [ids[2], ids[1], ids[0], ids[3]]
        assert [one.letter_id for one in taken] == ordered

    async def test_letters_left_out_are_skipped_and_no_others_are_gone_through(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, *(a_letter() for _ in range(4)))
        await store.plan_replay(a_campaign(), ids)

        coming = await store.next_replay("c-1", limit=2)
        taken = await store.take_replay("c-1", limit=2, leave_out=frozenset(ids[:1]))

        assert {one.letter_id for one in coming} == set(ids[:2])
        assert [one.letter_id for one in taken] == [ids[1]]
        assert await self.state(store, ids[0]) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.SKIPPED: 1, Outcome.SENDING: 1, Outcome.PLANNED: 2}
        assert await self.is_sound(store)

    async def test_what_was_taken_but_not_sent_is_taken_again(self, store: LetterStore) -> None:
        one, two, three = await self.kept(store, a_letter(), a_letter(), a_letter())
        await store.plan_replay(a_campaign(), [one, two, three])
        before = await store.take_replay("c-1", limit=2)  # and then a crash
        await store.sent_replay("c-1", [one])

        after = await store.take_replay("c-1", limit=2)

        assert after[0] == before[1]
        assert [(taken.letter_id, taken.generation) for taken in after] == [(two, 1), (three, 1)]

    async def test_a_confirmed_copy_makes_its_letter_replayed(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        assert await self.state(store, id_) is State.REPLAYED
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert campaign.counts == {Outcome.CONFIRMED: 1}
        assert await self.is_sound(store)

    @pytest.mark.parametrize("told_first", ["by its consumer", "by its letter"])
    async def test_a_failed_copy_returns_to_its_letter(
        self, store: LetterStore, told_first: str
    ) -> None:
        letter = a_letter(b"original", attempts=3)
        (id_,) = await self.kept(store, letter)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])
        died = copy_that_died(taken)

        if told_first == "by its consumer":
            await store.settle_replays([settled(taken, Outcome.FAILED)])
        (kept,) = await store.keep([died])
        await store.settle_replays([settled(taken, Outcome.FAILED)])
        await store.keep([died])

        found = await self.one(store, id_)
        assert (kept.id, kept.is_new) == (id_, False)
        assert found.head.state is State.PENDING
        assert (found.head.attempts, found.head.replays) == (4, 1)
        assert [attempt.generation for attempt in found.story()] == [0, 1]
        assert found.message == letter.message
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert campaign.counts == {Outcome.FAILED: 1}
        (group,) = await store.groups()
        assert group.total == 2
        assert await self.is_sound(store)

    async def test_a_refused_copy_leaves_its_letter_open_and_says_why(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, a_letter(), a_letter())
        first, second = await self.taken(store, *ids)
        await store.sent_replay("c-1", [first.letter_id])

        news = settled(second, Outcome.REFUSED)
        await store.settle_replays([replace(news, why="no queue “orders”")])
        again = await store.take_replay("c-1", limit=5)

        assert again == []
        assert await self.state(store, first.letter_id) is State.REPLAYING
        assert await self.state(store, second.letter_id) is State.PENDING
        items = {one.letter_id: one for one in (await store.campaign_items("c-1")).items}
        (item,) = await store.replays([second.letter_id])
        assert items[second.letter_id] == item
        assert (item.outcome, item.why) == (Outcome.REFUSED, "no queue “orders”")
        assert items[first.letter_id].outcome is Outcome.SENT
        await store.settle_replays([settled(first, Outcome.CONFIRMED)])
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert await self.is_sound(store)

    async def test_a_sent_copy_is_not_refused_later(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        await store.settle_replays([settled(taken, Outcome.REFUSED)])

        assert await self.state(store, id_) is State.REPLAYING

    async def test_a_presumed_copy_makes_its_letter_replayed_until_it_dies(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        presumed = settled(taken, Outcome.PRESUMED)

        await store.settle_replays([presumed])  # it may not have gone yet
        unsent = await self.state(store, id_)
        await store.sent_replay("c-1", [id_])
        await store.settle_replays([presumed, presumed])
        (done,) = await store.campaigns()

        assert unsent is State.REPLAYING
        assert await self.state(store, id_) is State.REPLAYED
        assert (done.state, done.counts) == (CampaignState.DONE, {Outcome.PRESUMED: 1})
        await store.keep([copy_that_died(taken)])
        (item,) = await store.replays([id_])
        assert await self.state(store, id_) is State.PENDING
        assert (item.outcome, item.failed_late) == (Outcome.FAILED, False)
        assert await self.is_sound(store)

    async def test_a_presumed_copy_can_be_confirmed(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        for outcome in (Outcome.PRESUMED, Outcome.CONFIRMED, Outcome.PRESUMED):
            await store.settle_replays([settled(taken, outcome)])

        (item,) = await store.replays([id_])
        assert item.outcome is Outcome.CONFIRMED
        assert await self.state(store, id_) is State.REPLAYED

    async def test_a_copy_returns_from_whatever_mailbox_it_died_in(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"original"))
        (taken,) = await self.taken(store, id_)
        died = copy_that_died(taken)
        died = replace(died, head=replace(died.head, source="elsewhere", partition="7"))

        (kept,) = await store.keep([died])

        found = await self.one(store, id_)
        assert (kept.id, kept.conflict) == (id_, False)
        assert found.head.source == "orders"
        assert await self.is_sound(store)

    async def test_the_first_signing_key_is_kept(self, store: LetterStore) -> None:
        first = await store.signing_key(b"\x00first")

        assert first == b"\x00first"
        assert await store.signing_key(b"second") == first

    async def test_no_body_disappears_by_a_lineage_that_is_made_up(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"one"))
        lineage = Lineage(letter_id=id_, generation=1, campaign="c-1")

        (kept,) = await store.keep([a_letter(b"two", lineage=lineage)])

        assert kept.is_new
        assert (await self.one(store, kept.id)).message.body == b"two"
        assert (await self.one(store, id_)).head.attempts == 1

    async def test_a_copy_whose_letter_is_gone_becomes_a_letter(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await self.moved(store, id_, State.PENDING)
        await store.purge([id_], ANNA)

        (kept,) = await store.keep([copy_that_died(taken)])
        (again,) = await store.keep([copy_that_died(taken)])

        assert (kept.is_new, again.is_new) == (True, False)
        assert await self.is_sound(store)

    async def test_past_the_cap_a_letter_is_quarantined(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        for n in (1, 2):
            campaign = a_campaign(f"c-{n}", cap=2)
            (taken,) = await self.taken(store, id_, campaign=campaign)
            assert taken.generation == n
            await store.keep([copy_that_died(taken, later=60.0 * n)])

        assert await self.state(store, id_) is State.QUARANTINED
        assert await self.taken(store, id_, campaign=a_campaign("c-3", cap=2)) == []
        (third, *_) = await store.campaigns()
        assert third.state is CampaignState.DONE
        assert third.counts == {Outcome.SKIPPED: 1}
        (patient,) = await self.taken(store, id_, campaign=a_campaign("c-4", cap=3))
        assert patient.generation == 3
        assert await self.is_sound(store)

    async def test_a_letter_found_past_the_cap_is_quarantined_and_skipped(
        self, store: LetterStore
    ) -> None:
        one, two = await self.kept(store, a_letter(replays=5), a_letter())

        taken = await self.taken(store, one, two)

        assert [t.letter_id for t in taken] == [two]
        assert await self.state(store, one) is State.QUARANTINED
        (entry,) = await store.audit(target=one)
        assert (entry.action, entry.actor) == ("quarantine", "anna")
        assert await self.is_sound(store)

    async def test_letters_that_may_not_be_replayed_are_skipped(self, store: LetterStore) -> None:
        closed, gone, open_ = await self.kept(store, a_letter(), a_letter(), a_letter())
        await store.plan_replay(a_campaign(), [closed, gone, open_])
        await self.moved(store, closed, State.CLOSED)
        await store.purge([gone], ANNA)

        taken = await store.take_replay("c-1", limit=1)

        assert [t.letter_id for t in taken] == [open_]
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.SKIPPED: 2, Outcome.SENDING: 1}
        assert await self.is_sound(store)

    async def test_a_taken_letter_that_somebody_took_back_is_not_sent(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        await self.taken(store, id_)
        await self.moved(store, id_, State.PENDING)

        again = await store.take_replay("c-1", limit=1)

        assert again == []
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.UNCONFIRMED: 1}
        assert campaign.state is CampaignState.DONE

    async def test_each_letter_goes_out_once_however_many_campaigns_want_it(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, *(a_letter() for _ in range(30)))
        names = [f"c-{n}" for n in range(10)]
        await asyncio.gather(*(store.plan_replay(a_campaign(name), ids) for name in names))

        taken = await asyncio.gather(*(store.take_replay(name, limit=30) for name in names))

        out = [one.letter_id for some in taken for one in some]
        assert sorted(out) == sorted(ids)
        assert await self.is_sound(store)

    async def test_a_copy_that_lost_its_lineage_still_comes_back(self, store: LetterStore) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        await store.keep([tried_again(letter)])

        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.FAILED: 1}

    async def test_a_campaign_can_be_added_to(self, store: LetterStore) -> None:
        one, two, three = await self.kept(store, a_letter(), a_letter(), a_letter())
        (taken,) = await self.taken(store, one)
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])  # done

        more = await self.taken(store, one, two, three, three)

        assert [t.letter_id for t in more] == [two, three]
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.RUNNING
        assert campaign.counts == {Outcome.CONFIRMED: 1, Outcome.SENDING: 2}
        assert await self.is_sound(store)

    async def test_planning_is_audited(self, store: LetterStore) -> None:
        ids = await self.kept(store, a_letter(), a_letter())

        await store.plan_replay(a_campaign(reason="fixed in 1.8"), ids)

        (entry,) = await store.audit(target="c-1")
        assert (entry.action, entry.actor) == ("replay", "anna")
        assert (entry.reason, entry.detail) == ("fixed in 1.8", "2 letters: is:open")

    async def test_a_paused_campaign_hands_out_nothing(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        await store.plan_replay(a_campaign(), [id_])

        await store.set_campaign("c-1", CampaignState.PAUSED, ANNA)
        paused = await store.take_replay("c-1", limit=1)
        await store.set_campaign("c-1", CampaignState.RUNNING, ANNA)
        resumed = await store.take_replay("c-1", limit=1)

        assert (len(paused), len(resumed)) == (0, 1)
        details = [entry.detail for entry in await store.audit(target="c-1")]
        assert details[1:] == ["running to paused", "paused to running"]

    async def test_a_cancelled_campaign_stays_cancelled(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        await store.plan_replay(a_campaign(), [id_])
        await store.set_campaign("c-1", CampaignState.CANCELLED, ANNA)

        with pytest.raises(Conflict, match="cancelled"):
            await store.set_campaign("c-1", CampaignState.RUNNING, ANNA)
        with pytest.raises(Conflict, match="cancelled"):
            await store.plan_replay(a_campaign(), [id_])

        assert await store.take_replay("c-1", limit=1) == []

    async def test_campaigns_are_listed_latest_first(self, store: LetterStore) -> None:
        campaigns = [
            a_campaign("c-1", to="elsewhere", rate=2.5, cap=7, reason="why not"),
            a_campaign("c-2", care=Care(canary=3, ramp=True, halt_on=0.25), through="shop"),
            a_campaign("c-3"),
        ]
        for campaign in campaigns:
            await store.plan_replay(campaign, [])

        assert await store.campaigns() == campaigns[::-1]
        assert await store.campaigns(limit=1) == [campaigns[2]]

    async def test_a_campaign_is_found_behind_any_number_of_others(
        self, store: LetterStore
    ) -> None:
        for name in ("c_1", "c-1", "c-10", "d-1"):
            await store.plan_replay(a_campaign(name), [])
        await store.set_campaign("c-1", CampaignState.PAUSED, ANNA)

        async def found(**asked: Any) -> list[str]:
            return [one.id for one in await store.campaigns(**asked)]

        assert await found(begins="c_", limit=1) == ["c_1"]
        assert await found(begins="c-1") == ["c-10", "c-1"]
        assert await found(begins="%") == []
        assert await found(only=CampaignState.PAUSED, limit=1) == ["c-1"]
        assert await found(only=CampaignState.PAUSED, begins="d") == []

    async def test_a_campaign_of_nothing_is_done_at_once(self, store: LetterStore) -> None:
        taken = await self.taken(store)

        (campaign,) = await store.campaigns()
        assert taken == []
        assert campaign.state is CampaignState.DONE

    async def test_an_unknown_campaign_is_not_found(self, store: LetterStore) -> None:
        with pytest.raises(NotFound, match="c-9"):
            await store.take_replay("c-9", limit=1)
        with pytest.raises(NotFound, match="c-9"):
            await store.sent_replay("c-9", [])
        with pytest.raises(NotFound, match="c-9"):
            await store.set_campaign("c-9", CampaignState.PAUSED, ANNA)

    async def test_only_outcomes_can_be_told(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)

        with pytest.raises(ConfigError, match="refused, unconfirmed, presumed"):
            await store.settle_replays([settled(taken, Outcome.SKIPPED)])
