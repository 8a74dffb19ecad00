"""The whole contract of a letter store, and the part about searches and lists."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState
from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.letter import By, Group, GroupStatus, Standing, State
from deadletter.core.query import parse
from deadletter.core.query.search_step import group_cursor
from deadletter.ports import LetterStore, Page

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_campaign, a_letter, tried_again
from .letters_deaths import DeathsContract
from .letters_filing import KeepingContract, OverflowContract, WindowsContract
from .letters_grouping import GroupingContract, RegroupingContract, WaitingContract
from .letters_plans import KeptPlansContract
from .letters_presence import PresenceContract
from .letters_replaying import ReplayingContract
from .letters_returning import KeyOrderContract, RetellingContract, ReturningContract
from .letters_reviewing import EditingContract, ReviewingContract
from .letters_searches import SearchesContract


class FindingContract(OfficeBench):
    """Lists, searches, groups and counts."""

    async def test_the_newest_death_comes_first(self, store: LetterStore) -> None:
        minutes = [3, 1, 2, 2]
        letters = [a_letter(at=START + timedelta(minutes=n)) for n in minutes]
        ids = await self.kept(store, *letters)

        page = await store.find()

        assert [head.id for head in page.heads] == [ids[0], ids[3], ids[2], ids[1]]
        assert page.after is None
        assert page.looked_at == 4

    async def test_a_search_finds_what_matches_and_nothing_else(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        letters = {
            "dear": a_letter(b'{"amount": 900}', key="c-1", at=START),
            "cheap": a_letter(b'{"amount": 9}', key="c-2", at=START),
            "late": a_letter(source="returns", error_type="TimeoutError", at=START),
            "old": a_letter(b"Refused", at=START - timedelta(days=3)),
        }
        await self.kept(store, *letters.values())
        await self.moved(store, letters["cheap"].id, State.REVIEWED)
        names = {letter.id: name for name, letter in letters.items()}

        async def found(query: str) -> set[str]:
            heads = await self.all_heads(store, query=parse(query))
            return {names[head.id] for head in heads}

        clock.advance(60)
        assert await found("") == {"dear", "cheap", "late", "old"}
        assert await found("is:pending") == {"dear", "late", "old"}
        assert await found("is:[reviewed,closed]") == {"cheap"}
        assert await found("source:returns") == {"late"}
        assert await found("error:timeouterror") == {"late"}
        assert await found("error:NoFunds is:open") == {"dear", "cheap", "old"}
        assert await found("key:c-*") == {"dear", "cheap"}
        assert await found("!key:c-1") == {"cheap", "late", "old"}
        assert await found("body.amount:>100") == {"dear"}
        assert await found("refused") == {"old"}
        assert await found("refused OR key:c-2") == {"old", "cheap"}
        assert await found("age:<1d") == {"dear", "cheap", "late"}
        assert await found(f"id:{letters['late'].id[:12]}*") == {"late"}
        assert await found("group:f-1 since:1d !is:reviewed") == {"dear", "late"}

    async def test_pages_neither_skip_nor_repeat(self, store: LetterStore) -> None:
        # Many died at the very same moment, which a page may end in.
        letters = [a_letter(at=START + timedelta(seconds=n // 7)) for n in range(40)]
        ids = await self.kept(store, *letters)

        for limit in (1, 3, 7, 39, 40, 41):
            heads = await self.all_heads(store, limit=limit)
            assert [head.id for head in heads] == ids[::-1]

    async def test_pages_stay_true_while_letters_arrive_and_change(
        self, store: LetterStore
    ) -> None:
        letters = [a_letter(at=START + timedelta(seconds=n)) for n in range(20)]
        ids = await self.kept(store, *letters)
        seen: list[str] = []
        page = Page(())

        while not seen or page.after is not None:
            page = await store.find(limit=3, after=page.after)
            seen += [head.id for head in page.heads]
            # A new death, and one from further down that dies again.
            await self.kept(
                store,
                a_letter(at=START + timedelta(hours=1)),
                tried_again(letters[0], later=3600.0 + len(seen)),
            )
            await store.note(ids, "read on", ANNA)

        assert len(seen) == len(set(seen))
        assert set(ids[1:]) <= set(seen)

    async def test_many_letters_are_found_by_their_ids_alone(self, store: LetterStore) -> None:
        ids = await self.kept(store, *(a_letter() for _ in range(40)))
        wanted = [*ids[::2], *(f"{id_[:-6]}aaaaaa" for id_ in ids[1::2])]

        page = await store.find(parse(f"id:[{','.join(wanted)}]"))

        assert {head.id for head in page.heads} == set(ids[::2])
        assert page.after is None

    async def test_a_step_reads_a_bounded_number_of_bytes(self, store: LetterStore) -> None:
        large = [a_letter(b"x" * 1_000_000) for _ in range(20)]
        await self.kept(store, *large)

        page = await store.find(parse("body.order:1 OR zzz"))
        assert page.after is not None
        assert page.back_to == START
        assert 15 <= page.looked_at < 20

        rest = await store.find(parse("body.order:1 OR zzz"), after=page.after)
        assert rest.after is None
        assert page.looked_at + rest.looked_at == 20

    async def test_a_page_says_when_there_is_nothing_behind_it(self, store: LetterStore) -> None:
        await self.kept(store, *(a_letter() for _ in range(4)))

        first = await store.find(limit=2)
        second = await store.find(limit=2, after=first.after)

        assert first.after is not None
        assert second.after is None
        assert len(second.heads) == 2

    @pytest.mark.parametrize(
        "after", ["", "x", "1", "1.", "-1.2", "0.0.0", "f" * 15 + ".1", "1.1 OR 1", "\0"]
    )
    async def test_garbage_is_no_place_to_go_on_from(self, store: LetterStore, after: str) -> None:
        with pytest.raises(QueryError, match="not a valid cursor"):
            await store.find(after=after)

    async def test_a_page_of_nothing_is_refused(self, store: LetterStore) -> None:
        with pytest.raises(ConfigError, match="at least one"):
            await store.find(limit=0)

    async def test_letters_are_counted_by_source_and_state(self, store: LetterStore) -> None:
        one, two, _ = await self.kept(store, a_letter(), a_letter(), a_letter(source="returns"))
        await self.moved(store, one, State.REVIEWED)
        await self.moved(store, two, State.CLOSED)

        counts = await store.counts()

        assert counts == {
            "orders": {State.REVIEWED: 1, State.CLOSED: 1},
            "returns": {State.PENDING: 1},
        }

    async def test_like_failures_make_a_group(self, store: LetterStore) -> None:
        seconds = [0, 5, 3]
        letters = [
            a_letter(at=START + timedelta(seconds=n), error_text=f"after {n}") for n in seconds
        ]
        first, *_ = await self.kept(store, *letters)
        await self.moved(store, first, State.DISCARDED)

        (group,) = await store.groups()

        assert group.fingerprint == "f-1"
        assert (group.source, group.error_type) == ("orders", "shop.errors.NoFunds")
        assert (group.text, group.frame) == ("after 5", "shop.orders:charge")
        assert group.first_seen == START
        assert group.last_seen == START + timedelta(seconds=5)
        assert group.counts == {State.PENDING: 2, State.DISCARDED: 1}
        assert (group.total, group.open) == (3, 2)

    async def test_groups_are_listed_latest_first(self, store: LetterStore) -> None:
        for name, second in [("a", 2), ("b", 1), ("c", 3)]:
            at = START + timedelta(seconds=second)
            await self.kept(store, a_letter(fingerprint=name, source=name, at=at))
        (of_a,) = await self.all_heads(store, query=parse("source:a"))
        await self.moved(store, of_a.id, State.CLOSED)

        open_ = await store.groups()
        all_ = await store.groups(only_open=False)

        assert [group.fingerprint for group in open_] == ["c", "b"]
        assert [group.fingerprint for group in all_] == ["c", "a", "b"]
        assert [g.fingerprint for g in await store.groups(source="b")] == ["b"]
        assert [g.fingerprint for g in await store.groups(limit=1)] == ["c"]

    async def test_a_letter_that_dies_of_something_else_changes_its_group(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(fingerprint="before")
        await self.kept(store, letter)
        again = tried_again(a_letter(message_id=letter.message.id, fingerprint="after"))

        await self.kept(store, again)

        by_name = {g.fingerprint: g for g in await store.groups(only_open=False)}
        assert by_name["before"].counts == {}
        assert by_name["after"].counts == {State.PENDING: 1}
        assert (by_name["before"].total, by_name["after"].total) == (1, 1)
        assert await self.is_sound(store)


_BOTH = pytest.mark.parametrize("largest_first", [False, True])


class ListingContract(OfficeBench):
    """Groups and campaigns, a page at a time."""

    async def page(
        self, store: LetterStore, behind: Group | None = None, **asked: Any
    ) -> list[Group]:
        """Groups behind that one."""
        after = None if behind is None else group_cursor(behind)
        return list(await store.groups(after=after, **asked))

    async def dead(self, store: LetterStore, **deaths: list[int]) -> None:
        """Groups of these names, with a letter that died at each of these seconds."""
        await self.kept(
            store,
            *(
                a_letter(fingerprint=name, source=name[0], at=START + timedelta(seconds=n))
                for name, seconds in deaths.items()
                for n in seconds
            ),
        )

    async def test_the_largest_groups_come_first_if_asked_for(self, store: LetterStore) -> None:
        await self.dead(store, a=[1, 2], b=[5], c=[3, 4, 4], d=[6], e=[6], f=[7, 8])
        (last,) = (await store.find(limit=1)).heads
        await store.purge([last.id], ANNA)  # f has had two, and has one

        found = await store.groups(largest_first=True)

        assert [(one.fingerprint, one.open, one.total) for one in found] == [
            ("c", 3, 3),
            ("a", 2, 2),
            ("f", 1, 2),
            ("e", 1, 1),
            ("d", 1, 1),
            ("b", 1, 1),
        ]

    @_BOTH
    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    async def test_pages_of_groups_are_the_list(
        self, store: LetterStore, limit: int, largest_first: bool
    ) -> None:
        # Several at the same moment, several of one size, and names that are no text.
        await self.dead(store, a=[1], b=[1], c=[1, 1], d=[0, 1], e=[2], f=[0], g=[0])
        await self.dead(store, **{"h\0": [1], "i\ud800": [1], "jö": [1], "k.1": [1]})
        asked: dict[str, Any] = {"limit": limit, "largest_first": largest_first}

        walked = page = await self.page(store, **asked)
        while page and len(walked) <= 11:  # or pages lead nowhere
            page = await self.page(store, page[-1], **asked)
            walked = walked + page

        everything = await self.page(store, largest_first=largest_first)
        assert len(everything) == 11
        assert walked == everything

    @_BOTH
    async def test_deaths_between_two_pages_push_no_group_out(
        self, store: LetterStore, largest_first: bool
    ) -> None:
        await self.dead(store, **{f"{name}-{n}": [n] for name in "ab" for n in range(6)})
        asked: dict[str, Any] = {"limit": 5, "largest_first": largest_first}
        still = {one.fingerprint for one in await self.page(store)} - {"a-5", "a-0"}

        first = await self.page(store, **asked)
        await self.dead(store, new=[20, 21], **{"a-5": [22], "a-0": [23]})
        second = await self.page(store, first[-1], **asked)
        await self.dead(store, newer=[30, 31])
        third = await self.page(store, second[-1], **asked)

        walked = [one.fingerprint for one in [*first, *second, *third]]
        assert sorted(set(walked) & still) == sorted(still)
        assert len(walked) == len(set(walked))

    @_BOTH
    async def test_a_page_has_only_the_groups_asked_for(
        self, store: LetterStore, largest_first: bool
    ) -> None:
        await self.dead(store, a1=[1], b1=[2], a2=[3], b2=[4], a3=[5])
        (first,) = await self.page(store, limit=1, largest_first=largest_first)
        (closed,) = (await store.find(limit=1)).heads
        assert first.fingerprint == "a3"
        await store.purge([closed.id], ANNA)

        of_a = await self.page(store, first, source="a", largest_first=largest_first)
        named = await self.page(store, first, named="b1", largest_first=largest_first)
        nothing = await self.page(store, text="no such text", largest_first=largest_first)

        assert nothing == []
        assert [one.fingerprint for one in of_a] == ["a2", "a1"]
        assert [one.fingerprint for one in named] == ["b1"]

    @pytest.mark.parametrize(
        "text", ["TIMED out", " timeoutER", "orders:CH", "bank_t", "ANNÄ", "%"]
    )
    async def test_groups_are_found_by_a_part_of_what_they_say(
        self, store: LetterStore, text: str
    ) -> None:
        wanted = a_letter(
            fingerprint="f-1",
            error_type="builtins.TimeoutError",
            error_text="timed out for 100% of ö\0",
            code="BANK_TIMEOUT",
        )
        other = a_letter(fingerprint="f-2", error_type="ValueError", error_text="x", code="_")
        other = replace(other, frame="library:read")
        await self.kept(store, wanted, other)
        owned = Standing(status=GroupStatus.ONGOING, owner="annÄ")
        await store.set_group("f-1", owned, ANNA)

        found = await store.groups(text=text)

        assert [one.fingerprint for one in found] == ["f-1"]

    @pytest.mark.parametrize("after", ["", "f-1", "1.1.1", "1.g.1.f-1", "f" * 15])
    async def test_groups_go_on_only_where_a_list_was_left_off(
        self, store: LetterStore, after: str
    ) -> None:
        await self.kept(store)

        with pytest.raises(QueryError, match="not a valid cursor"):
            await store.groups(after=after)

    async def test_campaigns_go_on_behind_any_of_them(self, store: LetterStore) -> None:
        for n in range(5):
            who = "anna" if n % 2 else "bo\ud800"
            await store.plan_replay(a_campaign(f"c-{n}", owner=who), [])
        await store.set_campaign("c-2", CampaignState.PAUSED, ANNA)

        async def found(**asked: Any) -> list[str]:
            return [one.id for one in await store.campaigns(**asked)]

        assert await found(limit=2) == ["c-4", "c-3"]
        await store.plan_replay(a_campaign("c-5"), [])  # pushes nothing out
        assert await found(limit=2, after="c-3") == ["c-2", "c-1"]
        assert await found(limit=2, after="c-1") == ["c-0"]
        assert await found(after="c-0") == []
        assert await found(after="c-4", only=CampaignState.PAUSED) == ["c-2"]
        assert await found(owner="bo\ud800") == ["c-4", "c-2", "c-0"]
        assert await found(owner="bo\ud800", after="c-4", limit=1) == ["c-2"]
        assert await found(owner="nobody") == []

    async def test_campaigns_go_on_only_behind_one_of_the_list(self, store: LetterStore) -> None:
        await store.plan_replay(a_campaign("c-1", owner="bo"), [])

        for owner, after in ((None, "c-9"), (None, ""), ("anna", "c-1")):
            with pytest.raises(QueryError, match="not a valid cursor"):
                await store.campaigns(owner=owner, after=after)

    async def test_a_campaign_runs_as_who_let_it_run_last(self, store: LetterStore) -> None:
        planned = a_campaign("c-1", owner="p-1", state=CampaignState.PLANNED)
        await store.plan_replay(planned, [])

        seen = []
        for state, principal in (
            (CampaignState.RUNNING, "p-1"),
            (CampaignState.PAUSED, "p-2"),
            (CampaignState.RUNNING, "p-3"),
            (CampaignState.PAUSED, ""),
            (CampaignState.RUNNING, ""),
        ):
            await store.set_campaign("c-1", state, By("anna", "", principal))
            (campaign,) = await store.campaigns()
            seen.append((campaign.owner, campaign.runs_as))

        assert seen == [("p-1", one) for one in ("p-1", "p-1", "p-3", "p-3", "")]


class LetterStoreContract(
    KeepingContract,
    FindingContract,
    GroupingContract,
    RegroupingContract,
    OverflowContract,
    ListingContract,
    ReviewingContract,
    EditingContract,
    ReplayingContract,
    KeptPlansContract,
    KeyOrderContract,
    ReturningContract,
    RetellingContract,
    WaitingContract,
    WindowsContract,
    DeathsContract,
    PresenceContract,
    SearchesContract,
):
    """All of it. A backend's whole test is a subclass with a fixture `store`."""
