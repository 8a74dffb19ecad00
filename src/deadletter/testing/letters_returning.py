"""Contracts of an office: copies that come back late or changed, and letters of one key."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState, Care, Outcome, ReplayItem
from deadletter.core.errors import NotFound
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, State
from deadletter.ports import LetterStore, ReplayTaken

from .fakes import START, FakeClock
from .letters_bench import (
    ANNA,
    OfficeBench,
    a_campaign,
    a_letter,
    copy_that_died,
    settled,
    tried_again,
)


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


def changed(taken: ReplayTaken, body: bytes, **where: str) -> DeadLetter:
    """Return a copy that died after somebody put another body into it on its way."""
    died = copy_that_died(taken)
    head = replace(died.head, size=len(body), replays=taken.generation, **where)
    return replace(died, head=head, message=replace(died.message, body=body))


class ReturningContract(OfficeBench):
    """Contract: copies keep their bodies, and late failures are recorded."""

    async def test_a_changed_copy_that_dies_is_a_letter_of_its_own(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(b"original")
        (id_,) = await self.kept(store, letter)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])
        died = changed(taken, b"changed")

        (kept,) = await store.keep([died])
        (again,) = await store.keep([died])

        head = letter.head
        apart = letter_id(head.source, "", head.message_id, body_digest(b"changed"))
        assert (kept.id, kept.is_new, kept.conflict) == (apart, True, True)
        assert (again.id, again.is_new, again.conflict) == (apart, False, True)
        found = await store.get([id_, apart])
        assert [one.message.body for one in found] == [b"original", b"changed"]
        assert [one.head.conflict for one in found] == [False, True]
        assert [one.head.attempts for one in found] == [1, 1]
        assert await self.is_sound(store)

    async def test_the_letter_of_a_changed_copy_knows_that_it_failed(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"original"))
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])

        await store.keep([changed(taken, b"changed"), changed(taken, b"otherwise")])

        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert campaign.counts == {Outcome.FAILED: 1}
        assert len(await self.all_heads(store)) == 3
        assert await self.is_sound(store)

    async def test_a_copy_changed_on_its_way_to_another_mailbox_is_marked(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"original"))
        (taken,) = await self.taken(store, id_, campaign=a_campaign(to="elsewhere"))

        (kept,) = await store.keep([changed(taken, b"changed", source="elsewhere")])

        assert (kept.is_new, kept.conflict) == (True, True)
        found = await self.one(store, kept.id)
        assert (found.head.source, found.message.body) == ("elsewhere", b"changed")
        assert await self.state(store, id_) is State.PENDING

    async def test_a_letter_marked_as_a_conflict_is_kept_apart(self, store: LetterStore) -> None:
        marked = a_letter(b"two", message_id="m", conflict=True)

        (kept,) = await store.keep([marked])
        (again,) = await store.keep([tried_again(marked)])
        (first,) = await store.keep([a_letter(b"one", message_id="m")])

        apart = letter_id("orders", "", "m", body_digest(b"two"))
        assert (kept.id, kept.is_new, kept.conflict) == (apart, True, True)
        assert (again.id, again.is_new, again.conflict) == (apart, False, True)
        assert (first.is_new, first.conflict) == (True, False)
        assert await self.is_sound(store)

    async def test_a_body_that_has_a_letter_is_not_kept_apart_from_it(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(b"one", message_id="m")
        (id_,) = await self.kept(store, letter)
        marked = replace(letter, head=replace(letter.head, conflict=True))

        (kept,) = await store.keep([tried_again(marked)])

        assert (kept.id, kept.is_new, kept.conflict) == (id_, False, False)
        assert len(await self.all_heads(store)) == 1

    async def test_a_changed_copy_can_be_replayed_like_any_letter(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store, a_letter(b"original"))
        (taken,) = await self.taken(store, id_)
        (kept,) = await store.keep([changed(taken, b"changed")])

        (own,) = await self.taken(store, kept.id, campaign=a_campaign("c-2"))
        (back,) = await store.keep([copy_that_died(own, later=90.0)])

        assert (own.message.body, own.generation) == (b"changed", 2)
        assert (back.id, back.is_new) == (kept.id, False)
        assert await self.state(store, id_) is State.PENDING
        first, second = (one.counts for one in await store.campaigns())
        assert first == second == {Outcome.FAILED: 1}
        assert await self.is_sound(store)

    @pytest.mark.parametrize("body", [b"broken", b"mended"])
    async def test_a_copy_with_either_body_of_an_edited_letter_is_not_changed(
        self, store: LetterStore, body: bytes
    ) -> None:
        died = a_letter(b"broken")
        (id_,) = await self.kept(store, died)
        mended = replace(died.message, body=b"mended")
        await store.edit(id_, mended, revision=0, by=ANNA)
        (taken,) = await self.taken(store, id_)

        (kept,) = await store.keep([changed(taken, body)])

        assert (kept.id, kept.is_new, kept.conflict) == (id_, False, False)

    async def test_a_letter_that_fails_after_it_was_confirmed_has_failed(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.sent_replay("c-1", [id_])
        clock.advance(1.0)
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])
        clock.advance(1.0)

        await store.keep([copy_that_died(taken)])
        await store.keep([copy_that_died(taken)])

        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.state is CampaignState.DONE
        assert campaign.counts == {Outcome.FAILED: 1}
        (item,) = await store.replays([id_])
        assert item.failed_late
        assert item.confirmed_at == START + timedelta(seconds=1)
        assert (item.outcome, item.settled_at) == (Outcome.FAILED, START + timedelta(seconds=2))
        page = await store.campaign_items("c-1")
        assert page.items == (item,)
        assert await self.is_sound(store)

    async def test_a_failure_that_follows_at_once_is_not_late(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)

        await store.settle_replays([settled(taken, Outcome.FAILED)])
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        (item,) = await store.replays([id_])
        assert (item.outcome, item.confirmed_at) == (Outcome.FAILED, None)
        assert await self.state(store, id_) is State.PENDING

    async def test_a_confirmed_copy_that_fails_without_a_letter_has_failed(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        await store.settle_replays([settled(taken, Outcome.FAILED)])

        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.FAILED: 1}
        assert await self.is_sound(store)

    async def test_news_both_ways_at_once_is_a_failure(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_)

        await store.settle_replays(
            [settled(taken, one) for one in (Outcome.FAILED, Outcome.CONFIRMED)]
        )

        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.FAILED: 1}

    @pytest.mark.parametrize("since", [State.REPLAYED, State.CLOSED])
    async def test_a_confirmed_letter_that_dies_without_its_lineage_has_failed(
        self, store: LetterStore, since: State
    ) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        (taken,) = await self.taken(store, id_)
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])
        if since is State.CLOSED:
            await self.moved(store, id_, State.CLOSED)

        await store.keep([letter])  # its first death, told again
        (before,) = await store.campaigns()
        await store.keep([tried_again(letter)])

        assert before.counts == {Outcome.CONFIRMED: 1}
        assert await self.state(store, id_) is State.PENDING
        (campaign,) = await store.campaigns()
        assert campaign.counts == {Outcome.FAILED: 1}
        assert await self.is_sound(store)

    async def test_late_news_of_an_old_copy_leaves_the_letter_alone(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        (first,) = await self.taken(store, id_)
        await self.moved(store, id_, State.PENDING)
        (second,) = await self.taken(store, id_, campaign=a_campaign("c-2"))
        assert second.generation == 2

        await store.settle_replays([settled(first, Outcome.CONFIRMED)])
        await store.keep([copy_that_died(first)])
        waiting = await self.state(store, id_)
        await store.settle_replays([settled(second, Outcome.CONFIRMED)])
        await store.keep([copy_that_died(first, later=90.0)])

        assert waiting is State.REPLAYING
        assert await self.state(store, id_) is State.REPLAYED
        latest, earlier = await store.campaigns()
        assert latest.counts == {Outcome.CONFIRMED: 1}
        assert earlier.counts == {Outcome.FAILED: 1}
        assert await self.is_sound(store)

    async def test_a_letter_that_fails_late_at_the_cap_is_quarantined(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        (taken,) = await self.taken(store, id_, campaign=a_campaign(cap=1))
        await store.settle_replays([settled(taken, Outcome.CONFIRMED)])

        await store.settle_replays([settled(taken, Outcome.FAILED)])

        assert await self.state(store, id_) is State.QUARANTINED


class RetellingContract(OfficeBench):
    """Contract: the history of a letter in campaigns can be read."""

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
        assert (first.outcome, first.settled_at) == (Outcome.FAILED, START + timedelta(seconds=5))
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
        closed, pending = await self.kept(store, a_letter(state=State.CLOSED), a_letter())
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

    async def test_a_campaigns_letters_are_told_page_by_page(self, store: LetterStore) -> None:
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

    async def test_letters_purged_since_leave_a_gap_in_the_report(self, store: LetterStore) -> None:
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
