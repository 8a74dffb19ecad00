"""Contracts of groups: standings, regressions, waiting outcomes."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.errors import ConfigError, NotFound, QueryError
from deadletter.core.grouping import (
    GroupLimit,
    GroupRule,
    Regrouping,
    StatusCount,
    is_overflow,
    overflow_of,
)
from deadletter.core.letter import DeadLetter, GroupStatus, Standing, State
from deadletter.core.query import parse
from deadletter.ports import LetterStore, Move

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

_RESOLVED = Standing(status=GroupStatus.RESOLVED, since=START, owner="bo", note="fixed")


class GroupingContract(OfficeBench):
    """Groups and their standings."""

    async def standing(self, store: LetterStore, fingerprint: str = "f-1") -> Standing:
        """Return the only group of a fingerprint."""
        (group,) = await store.groups(only_open=False, named=fingerprint)
        return group.standing

    async def test_a_group_is_new_until_somebody_says_something(self, store: LetterStore) -> None:
        await self.kept(store)

        assert await self.standing(store) == Standing()

    async def test_what_was_said_of_a_group_is_kept_and_audited(self, store: LetterStore) -> None:
        await self.kept(store)
        said = Standing(
            status=GroupStatus.ONGOING, since=START, owner="bö\ud800", note="the bank knows\0"
        )

        await store.set_group("f-1", said, ANNA)

        assert await self.standing(store) == said
        (entry,) = await store.audit(target="f-1")
        assert (entry.action, entry.actor, entry.reason) == ("group", ANNA.actor, ANNA.reason)
        assert entry.detail.startswith("new to ongoing")
        assert await self.is_sound(store)

    async def test_of_a_group_that_is_not_there_nothing_is_said(self, store: LetterStore) -> None:
        with pytest.raises(NotFound, match="f-9"):
            await store.set_group("f-9", _RESOLVED, ANNA)

        assert await store.audit() == []

    async def test_groups_are_counted_by_their_current_status(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        for n, source in enumerate(["orders", "orders", "mails \0", "mails \0"]):
            letter = a_letter(b"%d" % n, source=source, fingerprint=f"f-{n}")
            await self.kept(store, letter)
        until = clock.now() + timedelta(hours=1)
        await store.set_group("f-0", Standing(status=GroupStatus.SNOOZED, until=until), ANNA)
        await store.set_group("f-1", _RESOLVED, ANNA)
        (found,) = [head.id for head in await self.all_heads(store) if head.fingerprint == "f-3"]
        await store.purge([found], ANNA)

        one = StatusCount(1, 1)
        assert await store.group_counts() == {
            GroupStatus.SNOOZED: one,
            GroupStatus.RESOLVED: one,
            GroupStatus.NEW: StatusCount(2, 1),
        }
        assert await store.group_counts(["mails \0"]) == {GroupStatus.NEW: StatusCount(2, 1)}

        clock.advance(3600)

        counts = await store.group_counts(["orders", "nowhere"])
        assert counts == {GroupStatus.ONGOING: one, GroupStatus.RESOLVED: one}

    @pytest.mark.parametrize("status", [GroupStatus.NEW, GroupStatus.REGRESSED])
    async def test_what_comes_about_by_itself_is_not_for_people_to_say(
        self, store: LetterStore, status: GroupStatus
    ) -> None:
        await self.kept(store)

        with pytest.raises(ConfigError, match="follows from events"):
            await store.set_group("f-1", Standing(status=status), ANNA)

    async def test_a_later_death_shows_that_a_group_was_not_resolved(
        self, store: LetterStore
    ) -> None:
        await self.kept(store)
        await store.set_group("f-1", _RESOLVED, ANNA)

        await self.kept(store, *(a_letter(at=START + timedelta(seconds=n)) for n in (1, 2)))

        standing = await self.standing(store)
        assert standing.status is GroupStatus.REGRESSED
        assert (standing.owner, standing.note) == ("bo", "fixed")
        acts = [entry.action for entry in await store.audit(target="f-1")]
        assert acts == ["group", "regress"]
        assert await self.is_sound(store)

    async def test_a_replayed_copy_that_dies_of_it_again_is_a_later_death(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        await store.set_group("f-1", _RESOLVED, ANNA)
        (taken,) = await self.taken(store, id_)

        await store.keep([copy_that_died(taken)])

        assert (await self.standing(store)).status is GroupStatus.REGRESSED

    async def test_deaths_of_before_and_deaths_told_twice_show_nothing(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(at=START + timedelta(seconds=5))
        await self.kept(store, letter)
        await store.set_group("f-1", _RESOLVED, ANNA)

        await self.kept(store, letter, a_letter(at=START - timedelta(seconds=5)))

        assert (await self.standing(store)).status is GroupStatus.RESOLVED

    async def test_only_its_own_deaths_show_something_of_a_group(self, store: LetterStore) -> None:
        await self.kept(store)
        await store.set_group("f-1", _RESOLVED, ANNA)

        later = START + timedelta(seconds=5)
        await self.kept(store, a_letter(fingerprint="f-2", at=later))

        assert (await self.standing(store)).status is GroupStatus.RESOLVED
        assert (await self.standing(store, "f-2")).status is GroupStatus.NEW

    async def test_versions_before_the_fix_may_still_fail(self, store: LetterStore) -> None:
        letter = a_letter(version="1.9")
        await self.kept(store, letter)
        fixed = Standing(status=GroupStatus.RESOLVED, since=START, version="1.10")
        await store.set_group("f-1", fixed, ANNA)

        await self.kept(store, tried_again(letter))
        before = await self.standing(store)
        later = START + timedelta(hours=1)
        await self.kept(store, a_letter(version="1.10.1", at=later))
        after = await self.standing(store)

        assert before.status is GroupStatus.RESOLVED
        assert after.status is GroupStatus.REGRESSED
        assert after.version == "1.10"

    @pytest.mark.parametrize(
        ("died_in", "fixed_in"),
        [("1.8", "1.8.0"), ("7c2e1d9", "8a0b"), ("2026-11-02", "2026-11-01")],
    )
    async def test_a_death_in_the_fixed_or_a_later_version_is_a_regression(
        self, store: LetterStore, died_in: str, fixed_in: str
    ) -> None:
        await self.kept(store, a_letter(version=fixed_in))
        fixed = Standing(status=GroupStatus.RESOLVED, since=START, version=fixed_in)
        await store.set_group("f-1", fixed, ANNA)

        later = START + timedelta(hours=1)
        await self.kept(store, a_letter(version=died_in, at=later))

        assert (await self.standing(store)).status is GroupStatus.REGRESSED

    async def test_versions_without_an_order_go_by_when_they_were_first_seen(
        self, store: LetterStore
    ) -> None:
        old = a_letter(version="8a0b", at=START - timedelta(days=1))
        await self.kept(store, old, a_letter(version="7c2e1d9"))
        fixed = Standing(status=GroupStatus.RESOLVED, since=START, version="7c2e1d9")
        await store.set_group("f-1", fixed, ANNA)

        await self.kept(store, a_letter(version="8a0b", at=START + timedelta(seconds=1)))
        before = await self.standing(store)
        await self.kept(store, a_letter(version="0f0f", at=START + timedelta(hours=1)))
        after = await self.standing(store)

        assert before.status is GroupStatus.RESOLVED
        assert after.status is GroupStatus.REGRESSED

    async def test_versions_are_searched_for_by_their_order(self, store: LetterStore) -> None:
        versions = ("8a0b", "1.7.9", "1.8", "1.8.0", "7c2e1d9", "1.10", "")
        await self.kept(
            store,
            *(
                a_letter(version=version, at=START + timedelta(minutes=n))
                for n, version in enumerate(versions)
            ),
        )

        async def found(query: str) -> set[str]:
            page = await store.find(parse(query), limit=20)
            return {head.version for head in page.heads}

        assert await found("version:<1.8") == {"8a0b", "1.7.9"}
        assert await found("version:<=1.8") == {"8a0b", "1.7.9", "1.8", "1.8.0"}
        assert await found("version:>1.8.0") == {"7c2e1d9", "1.10"}
        assert await found("version:<7c2e1d9") == {"8a0b", "1.7.9", "1.8", "1.8.0"}
        assert await found("!version:>=1.8") == {"8a0b", "1.7.9", ""}
        with pytest.raises(QueryError, match="never been seen"):
            await found("version:<0000000")

    async def test_a_flood_of_groups_ends_in_one_overflow_group(self, store: LetterStore) -> None:
        store.group_limit.per_day = 3
        flood = [a_letter(fingerprint=f"f-{n}", at=START) for n in range(1, 8)]
        await self.kept(store, *flood[:2])
        await self.kept(store, *flood[2:])
        store.group_limit = GroupLimit(3)  # as after a restart
        more = [a_letter(fingerprint=name, at=START) for name in ("f-1", "f-9", "f-9")]
        await self.kept(store, *more)

        groups = await store.groups(limit=100)
        sizes = {group.fingerprint: (group.total, group.open) for group in groups}
        overflow = sizes.pop(overflow_of(flood[0]))
        assert sizes == {"f-1": (2, 2), "f-2": (1, 1), "f-3": (1, 1)}
        assert overflow == (6, 6)
        page = await store.find(parse(f"group:{overflow_of(flood[0])}"))
        assert len(page.heads) == 6
        assert await self.is_sound(store)

    async def test_those_who_keep_at_once_make_no_more_groups_together(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 5
        batches = [[a_letter(fingerprint=f"f-{n}-{k}") for k in range(4)] for n in range(6)]

        await asyncio.gather(*(store.keep(batch) for batch in batches))

        groups = await store.groups(limit=100)
        assert len(groups) == 6
        assert sum(group.total for group in groups) == 24

    async def test_a_flood_hides_no_other_group_and_ends_with_the_day(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        store.group_limit.per_day = 2
        await self.kept(store, *(a_letter(fingerprint=f"f-{n}") for n in range(1, 6)))

        await self.kept(
            store,
            a_letter(fingerprint="g-1", source="refunds"),
            a_letter(fingerprint="g-2", error_type="KeyError"),
            replace(a_letter(fingerprint="g-3"), frame="shop.orders:refund"),
        )
        clock.advance(86_400)
        await self.kept(store, a_letter(fingerprint="f-9"))

        names = {group.fingerprint for group in await store.groups(limit=100)}
        overflow = {name for name in names if is_overflow(name)}
        assert names - overflow == {"f-1", "f-2", "g-1", "g-2", "g-3", "f-9"}
        assert len(overflow) == 1

    @pytest.mark.parametrize("status", [GroupStatus.ONGOING, GroupStatus.MUTED])
    async def test_a_death_changes_nothing_about_what_is_not_resolved(
        self, store: LetterStore, status: GroupStatus
    ) -> None:
        await self.kept(store)
        await store.set_group("f-1", Standing(status=status, since=START), ANNA)

        await self.kept(store, a_letter(at=START + timedelta(seconds=5)))

        assert (await self.standing(store)).status is status

    async def test_a_snooze_ends_by_itself(self, store: LetterStore, clock: FakeClock) -> None:
        await self.kept(store)
        until = START + timedelta(seconds=60)
        snoozed = Standing(status=GroupStatus.SNOOZED, since=START, until=until)
        await store.set_group("f-1", snoozed, ANNA)

        asked = frozenset({GroupStatus.ONGOING})
        during = await store.groups(statuses=asked)
        clock.advance(60.0)
        (after,) = await store.groups(statuses=asked)

        assert during == []
        assert after.standing == Standing(status=GroupStatus.ONGOING, since=START)

    async def test_groups_can_be_asked_for_by_status_and_name(self, store: LetterStore) -> None:
        names = ["1-aa", "1-ab", "1-b"]
        await self.kept(store, *(a_letter(fingerprint=name) for name in names))
        await store.set_group("1-ab", _RESOLVED, ANNA)

        named = await store.groups(named="1-a")
        resolved = await store.groups(statuses=frozenset({GroupStatus.RESOLVED}))
        both = await store.groups(named="1-b", statuses=frozenset(GroupStatus))

        assert {group.fingerprint for group in named} == {"1-aa", "1-ab"}
        assert [group.fingerprint for group in resolved] == ["1-ab"]
        assert [group.fingerprint for group in both] == ["1-b"]


_LATER = START + timedelta(hours=1)
_MUTED = Standing(status=GroupStatus.MUTED, since=_LATER, owner="bo", note="known")


class RegroupingContract(OfficeBench):
    """Letters that change their group, and rules about letters to come."""

    async def names(self, store: LetterStore) -> dict[str, int]:
        """All groups, with the letters in them."""
        found = await store.groups(only_open=False)
        return {one.fingerprint: sum(one.counts.values()) for one in found}

    async def test_letters_move_with_what_was_said_of_their_group(self, store: LetterStore) -> None:
        ids = await self.kept(store, *self.letters(3))
        await store.set_group("f-1", _MUTED, ANNA)

        moved = await store.regroup([self.moving(ids, "g-1")], ANNA)

        assert moved == 3
        (group,) = await store.groups(only_open=False)
        assert (group.fingerprint, group.total, group.open) == ("g-1", 3, 3)
        assert group.counts == {State.PENDING: 3}
        assert (group.standing, group.first_seen) == (_MUTED, START)
        assert {one.head.fingerprint for one in await store.get(ids)} == {"g-1"}
        *_, entry = await store.audit(target="f-1")
        assert (entry.action, entry.detail) == ("regroup", "3 letters to g-1")
        assert await self.is_sound(store)

    async def test_a_group_that_becomes_several_leaves_its_standing_to_each(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, *self.letters(5))
        await store.set_group("f-1", _MUTED, ANNA)

        await store.regroup([self.moving(ids[:2], "g-1")], ANNA)
        assert await self.names(store) == {"f-1": 3, "g-1": 2}
        assert await self.is_sound(store)
        await store.regroup([self.moving(ids[2:], "g-2")], ANNA)

        found = await store.groups(only_open=False)
        assert {one.fingerprint: one.total for one in found} == {"g-1": 2, "g-2": 3}
        assert {one.standing for one in found} == {_MUTED}
        assert await self.is_sound(store)

    async def test_of_groups_that_become_one_nothing_is_hidden(self, store: LetterStore) -> None:
        known = await self.kept(store, *self.letters(2))
        newer = a_letter(fingerprint="f-2", at=_LATER + timedelta(hours=1))
        await self.kept(store, newer)
        await store.set_group("f-1", _MUTED, ANNA)

        await store.regroup([self.moving(known, "f-2")], ANNA)

        (group,) = await store.groups(only_open=False)
        assert (group.fingerprint, group.total, group.open) == ("f-2", 3, 3)
        assert group.standing.status is GroupStatus.NEW
        assert (group.standing.owner, group.standing.note) == ("bo", "known")
        assert (group.first_seen, group.last_seen) == (START, newer.head.dead_at)
        assert await self.is_sound(store)

    async def test_letters_that_left_already_stay_where_they_are(self, store: LetterStore) -> None:
        ids = await self.kept(store, *self.letters(2))
        await store.regroup([self.moving(ids[:1], "g-1")], ANNA)

        again = await store.regroup([self.moving([*ids, "nothing"], "g-2")], ANNA)

        assert again == 1
        assert await self.names(store) == {"g-1": 1, "g-2": 1}
        assert await store.regroup([self.moving(ids, "g-3")], ANNA) == 0
        assert await self.is_sound(store)

    async def test_letters_to_come_follow_the_rules_of_people(self, store: LetterStore) -> None:
        await self.kept(store, a_letter(fingerprint="f-2"))
        whole = GroupRule(target="f-2", at=START, actor="anna")
        part = GroupRule(target="g-9", query="version:2.0", at=START, actor="anna")
        await store.set_group_rules("f-1", [part, whole], ANNA, "merged into f-2")

        await self.kept(store, a_letter(version="1.0"), a_letter(version="2.0"))
        await self.kept(store, a_letter(fingerprint="f-3"))

        assert await self.names(store) == {"f-2": 2, "g-9": 1, "f-3": 1}
        assert await store.group_rules() == {"f-1": (part, whole)}
        (entry,) = await store.audit(target="f-1")
        assert (entry.action, entry.detail) == ("regroup-rule", "merged into f-2")
        assert await self.is_sound(store)

    async def test_rules_can_be_taken_back(self, store: LetterStore) -> None:
        rule = GroupRule(target="f-2", at=START, actor="anna")
        await store.set_group_rules("f-1", [rule], ANNA, "merged into f-2")
        await store.set_group_rules("f-1", [], ANNA, "taken back")

        await self.kept(store)

        assert await self.names(store) == {"f-1": 1}
        assert await store.group_rules() == {}

    async def test_letters_of_older_fingerprints_are_kept_under_new_ones(
        self, store: LetterStore
    ) -> None:
        await self.kept(store, a_letter(fingerprint="1-e6e3c47920ff89d1"))

        (name,) = await self.names(store)
        assert name.startswith("2-")

    def letters(self, count: int) -> list[DeadLetter]:
        """Letters of one group, each a second younger than the one before."""
        return [a_letter(at=START + timedelta(seconds=n)) for n in range(count)]

    def moving(self, ids: list[str], new: str) -> Regrouping:
        """These letters leave the first group."""
        return Regrouping(old="f-1", new=new, ids=tuple(ids))


class WaitingContract(OfficeBench):
    """Letters that await an outcome are listed, can be closed, and still get their outcome."""

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

    async def test_a_letter_that_waits_cannot_become_reviewed(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        await self.taken(store, id_)

        review = Move(ids=(id_,), old=frozenset(State), new=State.REVIEWED)

        assert await store.move(review, ANNA) == []
