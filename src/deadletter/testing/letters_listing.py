"""What an office promises about long lists: page by page, nothing is left out."""

from datetime import timedelta
from typing import Any

import pytest

from deadletter.core.campaign import CampaignState
from deadletter.core.errors import QueryError
from deadletter.core.letter import By, Group
from deadletter.core.paging import group_cursor
from deadletter.ports import LetterStore

from .fakes import START
from .letters_bench import ANNA, OfficeBench, a_campaign, a_letter

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
                a_letter(
                    fingerprint=name, source=name[0], at=START + timedelta(seconds=n)
                )
                for name, seconds in deaths.items()
                for n in seconds
            ),
        )

    async def test_the_largest_groups_come_first_if_asked_for(
        self, store: LetterStore
    ) -> None:
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
        await self.dead(
            store, **{f"{name}-{n}": [n] for name in "ab" for n in range(6)}
        )
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

        assert [one.fingerprint for one in of_a] == ["a2", "a1"]
        assert [one.fingerprint for one in named] == ["b1"]

    @pytest.mark.parametrize("after", ["", "f-1", "1.1.1", "1.g.1.f-1", "f" * 15])
    async def test_groups_go_on_only_where_a_list_was_left_off(
        self, store: LetterStore, after: str
    ) -> None:
        await self.kept(store)

        with pytest.raises(QueryError, match="left off"):
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

    async def test_campaigns_go_on_only_behind_one_of_the_list(
        self, store: LetterStore
    ) -> None:
        await store.plan_replay(a_campaign("c-1", owner="bo"), [])

        for owner, after in ((None, "c-9"), (None, ""), ("anna", "c-1")):
            with pytest.raises(QueryError, match="left off"):
                await store.campaigns(owner=owner, after=after)

    async def test_a_campaign_runs_as_who_let_it_run_last(
        self, store: LetterStore
    ) -> None:
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
