"""Contract of a letter store that counts deaths over time."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.deaths import By, DeathFilter
from deadletter.core.grouping import Regrouping
from deadletter.ports import DeathCounting, LetterStore

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_letter, tried_again

FINE = timedelta(minutes=5)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class DeathsContract(OfficeBench):
    """Deaths are counted with the letters that are filed."""

    @pytest.fixture
    def counting(self, store: LetterStore) -> DeathCounting:
        if not store.features.counts_deaths:
            assert not isinstance(store, DeathCounting)
            pytest.skip("this office does not count deaths over time")
        assert isinstance(store, DeathCounting)
        return store

    async def counted(self, counting: DeathCounting, **how: object) -> list[tuple[int, str, int]]:
        """Return minutes after START, names and numbers."""
        request = replace(DeathFilter(since=START - DAY, until=START + DAY, step=FINE), **how)
        found = await counting.deaths(request)
        return [(round((one.at - START).total_seconds() / 60), one.name, one.n) for one in found]

    async def total(self, counting: DeathCounting) -> int:
        """Return all deaths there ever were."""
        since, until = START - 4_000 * DAY, START + 4_000 * DAY
        request = DeathFilter(since=since, until=until, step=DAY)
        return sum(one.n for one in await counting.deaths(request))

    async def test_deaths_are_counted_by_time_and_name(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        await self.kept(
            store,
            a_letter(fingerprint="f-1", version="1.7", at=START),
            a_letter(fingerprint="f-1", version="1.8", at=START + timedelta(minutes=4.99)),
            a_letter(fingerprint="f-2", version="1.8", at=START + timedelta(minutes=5)),
            a_letter(fingerprint="f-3", source="mails", at=START + timedelta(hours=2)),
        )

        assert await self.counted(counting) == [(0, "", 2), (5, "", 1), (120, "", 1)]
        assert await self.counted(counting, step=HOUR) == [(0, "", 3), (120, "", 1)]
        assert await self.counted(counting, by=By.SOURCE, step=DAY) == [
            (0, "mails", 1),
            (0, "orders", 3),
        ]
        assert await self.counted(counting, by=By.GROUP) == [
            (0, "f-1", 2),
            (5, "f-2", 1),
            (120, "f-3", 1),
        ]
        assert await self.counted(counting, by=By.VERSION, step=HOUR) == [
            (0, "1.7", 1),
            (0, "1.8", 2),
            (120, "", 1),
        ]

    async def test_deaths_of_some_mailboxes_and_groups_are_chosen(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        await self.kept(
            store,
            a_letter(fingerprint="f-1"),
            a_letter(fingerprint="f-2"),
            a_letter(fingerprint="f-3", source="mails"),
            a_letter(fingerprint="f-4", source="stock"),
        )

        of_two = await self.counted(counting, by=By.GROUP, sources=("mails", "stock"))
        assert of_two == [(0, "f-3", 1), (0, "f-4", 1)]
        assert await self.counted(counting, groups=("f-1", "f-4")) == [(0, "", 2)]
        assert await self.counted(counting, groups=("f-1",), sources=("mails",)) == []

    async def test_a_span_has_a_beginning_and_an_end(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        await self.kept(store, *(a_letter(at=START + n * FINE) for n in range(5)))

        span = {"since": START + timedelta(minutes=6), "until": START + timedelta(minutes=15)}

        assert await self.counted(counting, **span) == [(5, "", 1), (10, "", 1)]

    async def test_names_with_few_deaths_are_counted_together(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        letters = [a_letter(fingerprint=f"f-{n}") for n in range(4) for _ in range(n + 1)]
        await self.kept(store, *letters)

        found = await self.counted(counting, by=By.GROUP, most=2)

        assert found == [(0, "", 3), (0, "f-2", 3), (0, "f-3", 4)]

    async def test_the_same_news_counts_once_and_another_death_counts_again(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        letter = a_letter()
        await self.kept(store, letter, letter)
        await self.kept(store, letter)
        assert await self.counted(counting) == [(0, "", 1)]

        await self.kept(store, tried_again(letter, later=600.0))

        assert await self.counted(counting) == [(0, "", 1), (10, "", 1)]
        assert await self.is_sound(store)

    async def test_a_purged_letter_stays_counted(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        ids = await self.kept(store, a_letter(), a_letter())
        await store.purge(ids[:1], ANNA)

        assert await self.counted(counting) == [(0, "", 2)]
        assert await self.is_sound(store)

    async def test_deaths_of_a_merged_group_move_along(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        ids = await self.kept(store, a_letter(fingerprint="f-1"), a_letter(fingerprint="f-2"))
        await store.regroup([Regrouping(old="f-1", new="f-2", ids=tuple(ids[:1]))], ANNA)

        assert await self.counted(counting, by=By.GROUP) == [(0, "f-2", 2)]

    async def test_a_flood_of_groups_needs_few_counters(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        letters = [a_letter(fingerprint=f"f-{n:03}", version=f"{n % 2}") for n in range(100)]
        await self.kept(store, *letters)

        by_group = await self.counted(counting, by=By.GROUP)
        assert len(by_group) == 25
        assert sum(n for _, _, n in by_group) == 100
        by_version = await self.counted(counting, by=By.VERSION)
        assert by_version == [(0, "0", 50), (0, "1", 50)]

    async def test_old_counters_are_added_up_and_nothing_is_lost(
        self, store: LetterStore, counting: DeathCounting, clock: FakeClock
    ) -> None:
        times = [timedelta(minutes=7 * n) for n in range(60)]
        times += [timedelta(hours=5 * n) for n in range(60)]
        await self.kept(store, *(a_letter(at=START + at) for at in times))
        hours = await self.counted(counting, step=HOUR, by=By.SOURCE)

        clock.advance(14 * 86_400)
        while await counting.tidy_deaths():
            pass

        assert await self.counted(counting, step=HOUR, by=By.SOURCE) == hours
        assert {at % 60 for at, _, _ in await self.counted(counting)} == {0}
        assert await self.total(counting) == 120
        days = await self.counted(counting, step=DAY)

        clock.advance(40 * 86_400)
        while await counting.tidy_deaths():
            pass

        assert await self.counted(counting, step=DAY) == days
        assert [at % 1440 for at, _, _ in await self.counted(counting)] == [0] * len(days)
        assert await self.total(counting) == 120
        assert await self.is_sound(store)

    async def test_counters_of_a_late_death_are_added_up_as_well(
        self, store: LetterStore, counting: DeathCounting, clock: FakeClock
    ) -> None:
        for at in (START, START, START - 400 * DAY):
            await self.kept(store, a_letter(at=at))
            clock.advance(3 * 86_400)
            while await counting.tidy_deaths():
                pass

        assert await self.counted(counting) == [(0, "", 2)]
        assert await self.total(counting) == 3

    async def test_odd_names_are_counted_as_they_are(
        self, store: LetterStore, counting: DeathCounting, clock: FakeClock
    ) -> None:
        odd = ["a\0b", "\ud800", "é", "'; DROP TABLE deaths", "x" * 700]
        await self.kept(store, *(a_letter(fingerprint=name, version=name) for name in odd))
        clock.advance(3 * 86_400)
        while await counting.tidy_deaths():
            pass

        for by in (By.GROUP, By.VERSION):
            found = await self.counted(counting, by=by)
            assert {*odd[:-1]} <= {name for _, name, _ in found}
            assert sum(n for *_, n in found) == 5
        assert await self.counted(counting, groups=("a\0b", "\ud800")) == [(0, "", 2)]
        assert await self.is_sound(store)

    async def test_deaths_of_groups_are_counted_by_version(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        for n, version in enumerate(["1.7", "1.8", "1.7", "", "1.9"]):
            await self.kept(store, a_letter(version=version, at=START + n * FINE))
        await self.kept(store, a_letter(fingerprint="f-2", version="2", at=START))
        await self.kept(store, a_letter(fingerprint="f-3", version="3", at=START))

        found = await counting.deaths_by_version(["f-1", "f-2"])

        counts = {(one.group, one.version): (one.n, one.first, one.last) for one in found}
        assert counts == {
            ("f-1", "1.9"): (1, START + 4 * FINE, START + 4 * FINE),
            ("f-1", ""): (1, START + 3 * FINE, START + 3 * FINE),
            ("f-1", "1.7"): (2, START, START + 2 * FINE),
            ("f-1", "1.8"): (1, START + FINE, START + FINE),
            ("f-2", "2"): (1, START, START),
        }
        assert [one.version for one in found] == ["1.9", "", "1.7", "1.8", "2"]
        assert await counting.deaths_by_version([]) == []

    async def test_versions_first_seen_in_a_span_are_listed(
        self, store: LetterStore, counting: DeathCounting
    ) -> None:
        for n, version in enumerate(["1.7", "1.8", "1.7", "", "1.9"]):
            await self.kept(store, a_letter(version=version, at=START + n * HOUR))

        found = await counting.versions(START + timedelta(minutes=1), START + 5 * HOUR)

        assert [(one.source, one.version, one.at) for one in found] == [
            ("orders", "1.9", START + 4 * HOUR),
            ("orders", "1.8", START + HOUR),
        ]
