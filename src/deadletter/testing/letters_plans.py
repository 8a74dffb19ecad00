"""Contracts of plans that are kept with their campaign, and of outcomes looked for."""

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import (
    Campaign,
    CampaignState,
    Care,
    KeptPlan,
    Outcome,
    PlanSlice,
    Verdict,
)
from deadletter.core.errors import Conflict, NotFound
from deadletter.ports import LetterStore, PlanChange

from .letters_bench import ANNA, OfficeBench, a_campaign, a_letter, settled


class KeptPlansContract(OfficeBench):
    """Plans whose letters are judged after they were frozen."""

    async def frozen(self, store: LetterStore, *ids: str) -> Campaign:
        """Return a campaign whose plan has one slice of two letters, then the others."""
        plan = KeptPlan(total=len(ids))
        campaign = a_campaign(state=CampaignState.PLANNED, plan=plan)
        slices = [PlanSlice(tuple(ids[:2])), PlanSlice(tuple(ids[2:]))]
        await store.freeze_replay(campaign, slices)
        return campaign

    async def test_a_frozen_plan_is_kept_with_its_slices(self, store: LetterStore) -> None:
        ids = await self.kept(store, *(a_letter(bytes([n])) for n in range(3)))
        campaign = await self.frozen(store, *ids)

        [found] = await store.campaigns()
        slices = await store.plan_slices("c-1", first=0, limit=9)

        assert (found.plan, found.counts) == (campaign.plan, {})
        assert [one.letters for one in slices] == [(ids[0], ids[1]), (ids[2],)]
        assert await store.plan_slices("c-1", first=1, limit=1) == slices[1:]
        assert "3 to be judged" in (await store.audit(target="c-1"))[0].detail
        assert await self.is_sound(store)

    async def test_a_plan_changes_only_from_what_was_seen(self, store: LetterStore) -> None:
        ids = await self.kept(store, a_letter(b"1"), a_letter(b"2"), a_letter(b"3"))
        seen = await self.frozen(store, *ids)
        plan = KeptPlan(total=3, judged=2, verdicts={Verdict.READY: 1, Verdict.EXPIRED: 1})
        judged = PlanSlice(tuple(ids[:2]), (Verdict.READY, Verdict.EXPIRED))
        change = PlanChange(campaign=replace(seen, plan=plan), slices={0: judged})

        assert await store.change_plan(seen, change)
        assert not await store.change_plan(seen, change)

        [found] = await store.campaigns()
        assert found.plan == plan
        assert (await store.plan_slices("c-1", first=0, limit=1))[0] == judged

    async def test_letters_are_added_with_the_change(self, store: LetterStore) -> None:
        ids = await self.kept(store, a_letter(b"1"), a_letter(b"2"), a_letter(b"3"))
        seen = await self.frozen(store, *ids)
        care = Care(skip=(Verdict.EXPIRED,))
        after = replace(seen, care=care, plan=KeptPlan(total=3, judged=3, added=3))
        change = PlanChange(campaign=after, add=(ids[0], ids[2]), by=ANNA, detail="2 letters")

        assert await store.change_plan(seen, change)

        [found] = await store.campaigns()
        assert (found.care, found.counts) == (care, {Outcome.PLANNED: 2})
        assert (await store.audit(target="c-1"))[-1].detail == "2 letters"
        await store.set_campaign("c-1", CampaignState.RUNNING, ANNA)
        taken = await store.take_replay("c-1", limit=9)
        assert {one.letter_id for one in taken} == {ids[0], ids[2]}
        assert await self.is_sound(store)

    async def test_the_plan_of_a_cancelled_campaign_stays(self, store: LetterStore) -> None:
        ids = await self.kept(store, a_letter(b"1"), a_letter(b"2"), a_letter(b"3"))
        seen = await self.frozen(store, *ids)
        await store.set_campaign("c-1", CampaignState.CANCELLED, ANNA)

        change = PlanChange(campaign=replace(seen, plan=KeptPlan(total=3, judged=3)))

        assert not await store.change_plan(seen, change)

    async def test_a_planned_campaign_is_approved_once(self, store: LetterStore) -> None:
        ids = await self.kept(store, a_letter(b"1"), a_letter(b"2"), a_letter(b"3"))
        await self.frozen(store, *ids)

        await store.approve_replay("c-1", ANNA)

        assert (await store.campaigns())[0].approved_by == ANNA.actor
        assert (await store.audit(target="c-1"))[-1].action == "approve"
        with pytest.raises(Conflict, match="approved already"):
            await store.approve_replay("c-1", ANNA)
        with pytest.raises(NotFound):
            await store.approve_replay("c-9", ANNA)

    async def test_items_are_found_by_their_outcomes(self, store: LetterStore) -> None:
        letters = [a_letter(bytes([n]), key="k" if n > 6 else None) for n in range(9)]
        ids = await self.kept(store, *letters)
        await store.plan_replay(a_campaign(), ids)
        taken = await store.take_replay("c-1", limit=5)
        await store.sent_replay("c-1", [one.letter_id for one in taken])
        news = [Outcome.CONFIRMED, Outcome.FAILED, Outcome.CONFIRMED, Outcome.FAILED]
        await store.settle_replays(
            [settled(one, outcome) for one, outcome in zip(taken, news, strict=False)]
        )

        failed, after = [], 0
        while True:
            page = await store.campaign_items(
                "c-1", after=after, limit=1, outcomes=frozenset({Outcome.FAILED})
            )
            failed += [one.letter_id for one in page.items]
            if page.after is None:
                break
            after = page.after
        assert failed == [taken[1].letter_id, taken[3].letter_id]

        for outcomes, size in (
            ({Outcome.PLANNED}, 3),
            ({Outcome.WAITING}, 1),
            ({Outcome.SENT, Outcome.FAILED, Outcome.WAITING}, 4),
            ({Outcome.HELD}, 0),
        ):
            found = await store.campaign_items("c-1", outcomes=frozenset(outcomes))
            assert {one.outcome for one in found.items} == (outcomes if size else set())
            assert (len(found.items), found.after) == (size, None)
