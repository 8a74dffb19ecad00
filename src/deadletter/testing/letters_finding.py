"""What an office promises about finding: the right ones, each of them once."""

from datetime import timedelta

import pytest

from deadletter.core.errors import ConfigError, QueryError
from deadletter.core.letter import State
from deadletter.core.query import parse
from deadletter.ports import LetterStore, Page

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_letter, tried_again


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

    async def test_many_letters_are_found_by_their_ids_alone(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, *(a_letter() for _ in range(40)))
        wanted = [*ids[::2], *(f"{id_[:-6]}aaaaaa" for id_ in ids[1::2])]

        page = await store.find(parse(f"id:[{','.join(wanted)}]"))

        assert {head.id for head in page.heads} == set(ids[::2])
        assert page.after is None

    async def test_a_step_reads_a_bounded_number_of_bytes(
        self, store: LetterStore
    ) -> None:
        large = [a_letter(b"x" * 1_000_000) for _ in range(20)]
        await self.kept(store, *large)

        page = await store.find(parse("body.order:1 OR zzz"))
        assert page.after is not None
        assert page.back_to == START
        assert 15 <= page.looked_at < 20

        rest = await store.find(parse("body.order:1 OR zzz"), after=page.after)
        assert rest.after is None
        assert page.looked_at + rest.looked_at == 20

    async def test_a_page_says_when_there_is_nothing_behind_it(
        self, store: LetterStore
    ) -> None:
        await self.kept(store, *(a_letter() for _ in range(4)))

        first = await store.find(limit=2)
        second = await store.find(limit=2, after=first.after)

        assert first.after is not None
        assert second.after is None
        assert len(second.heads) == 2

    @pytest.mark.parametrize(
        "after",
        ["", "x", "1", "1.", "-1.2", "0.0.0", "f" * 15 + ".1", "1.1 OR 1", "\0"],
    )
    async def test_garbage_is_no_place_to_go_on_from(
        self, store: LetterStore, after: str
    ) -> None:
        with pytest.raises(QueryError, match="left off"):
            await store.find(after=after)

    async def test_a_page_of_nothing_is_refused(self, store: LetterStore) -> None:
        with pytest.raises(ConfigError, match="at least one"):
            await store.find(limit=0)

    async def test_letters_are_counted_by_source_and_state(
        self, store: LetterStore
    ) -> None:
        one, two, _ = await self.kept(
            store, a_letter(), a_letter(), a_letter(source="returns")
        )
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
            a_letter(at=START + timedelta(seconds=n), error_text=f"after {n}")
            for n in seconds
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
