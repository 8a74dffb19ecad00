"""Contract of a letter store: searches that people save."""

import asyncio

import pytest
from msgspec.structs import replace

from deadletter.core.errors import Conflict, NotFound
from deadletter.core.letter import By
from deadletter.core.saved_search import MOST, SavedSearch
from deadletter.ports import LetterStore

from .fakes import START
from .letters_bench import ANNA, OfficeBench

OLD: SavedSearch = SavedSearch(
    name="Old orders", query="source:orders age:>7d", saved_by="anna", saved_at=START, principal="a"
)
ODD = replace(OLD, name="Ärger 'mit\" 50 %", query='text:"\ud800 \0 💥"', principal="")


class SearchesContract(OfficeBench):
    """Searches stay under their names until somebody deletes them; changes are audited."""

    async def test_searches_are_kept_by_name(self, store: LetterStore) -> None:
        assert await store.searches() == []
        for search in (ODD, OLD):
            await store.save_search(search, ANNA)

        assert await store.searches() == [OLD, ODD]

    async def test_a_search_is_replaced_on_request_only(self, store: LetterStore) -> None:
        await store.save_search(OLD, ANNA)
        new = replace(OLD, query="source:orders", saved_by="ben", principal="b")

        with pytest.raises(Conflict, match="exists with another query"):
            await store.save_search(new, By("ben"))
        assert await store.searches() == [OLD]

        await store.save_search(new, By("ben"), replace=True)
        assert await store.searches() == [new]

    async def test_saving_twice_changes_nothing(self, store: LetterStore) -> None:
        await store.save_search(OLD, ANNA)
        again = replace(OLD, saved_by="ben", principal="b")

        assert await store.save_search(again, By("ben")) == OLD

        assert await store.searches() == [OLD]
        assert len(await store.audit()) == 1

    async def test_a_deleted_search_is_gone(self, store: LetterStore) -> None:
        await store.save_search(OLD, ANNA)
        await store.save_search(ODD, ANNA)

        assert await store.delete_search("Old orders", ANNA) == OLD
        assert await store.searches() == [ODD]
        with pytest.raises(NotFound, match="no saved search 'Old orders'"):
            await store.delete_search("Old orders", ANNA)

    async def test_an_owner_changes_own_searches_only(self, store: LetterStore) -> None:
        await store.save_search(OLD, ANNA)
        await store.save_search(ODD, ANNA)
        mine = replace(OLD, query="is:open")

        for name in (OLD.name, ODD.name):
            theirs = replace(mine, name=name, principal="b")
            with pytest.raises(Conflict, match="of others"):
                await store.save_search(theirs, ANNA, replace=True, owner="b")
            with pytest.raises(NotFound):
                await store.delete_search(name, ANNA, owner="b")
        with pytest.raises(NotFound):
            await store.delete_search(ODD.name, ANNA, owner="")

        await store.save_search(mine, ANNA, replace=True, owner="a")
        assert await store.delete_search(OLD.name, ANNA, owner="a") == mine

    async def test_an_office_keeps_a_bounded_number(self, store: LetterStore) -> None:
        for number in range(MOST):
            await store.save_search(replace(OLD, name=f"n-{number:03}"), ANNA)

        with pytest.raises(Conflict, match=f"has {MOST} saved searches"):
            await store.save_search(OLD, ANNA)
        await store.save_search(replace(OLD, name="n-007", query="is:open"), ANNA, replace=True)
        await store.delete_search("n-000", ANNA)
        await store.save_search(OLD, ANNA)
        assert len(await store.searches()) == MOST

    async def test_one_of_two_at_once_has_the_name(self, store: LetterStore) -> None:
        both = [replace(OLD, query=query) for query in ("is:open", "is:closed")]

        done: list[object] = await asyncio.gather(
            *(store.save_search(one, ANNA) for one in both), return_exceptions=True
        )

        assert [type(one) for one in done if isinstance(one, BaseException)] == [Conflict]
        (kept,) = await store.searches()
        assert kept in both

    async def test_changes_of_searches_are_audited(self, store: LetterStore) -> None:
        await store.save_search(OLD, By("anna", "every Monday"))
        await store.save_search(replace(OLD, query="is:open"), ANNA, replace=True)
        await store.delete_search(OLD.name, By("ben", "nobody needs it"))

        assert [
            (one.actor, one.action, one.target, one.detail, one.reason)
            for one in await store.audit(target="search:Old orders")
        ] == [
            ("anna", "save-search", "search:Old orders", OLD.query, "every Monday"),
            ("anna", "save-search", "search:Old orders", "is:open", ANNA.reason),
            ("ben", "delete-search", "search:Old orders", "is:open", "nobody needs it"),
        ]
        assert await store.verify() == []
