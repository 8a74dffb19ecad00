"""What an office promises of floods of groups beside what moves letters."""

from datetime import timedelta

from deadletter.core.group_limit import GroupLimit, is_overflow, overflow_of
from deadletter.core.letter import DeadLetter, GroupStatus, Standing
from deadletter.core.regrouping import GroupRule, Regrouping
from deadletter.ports import LetterStore

from .fakes import START
from .letters_bench import ANNA, OfficeBench, a_letter

_WHOLE = GroupRule(target="g-1", at=START, actor="anna")


def _flood(*names: str) -> list[DeadLetter]:
    return [a_letter(fingerprint=name) for name in names]


class OverflowContract(OfficeBench):
    """Letters that the limit, people and upgrades move; everything adds up after."""

    async def sizes(self, store: LetterStore) -> dict[str, int]:
        """All groups, with the deaths they count; overflow groups under one name."""
        assert await self.is_sound(store)
        found = await store.groups(only_open=False, limit=100)
        return {
            "overflow" if is_overflow(one.fingerprint) else one.fingerprint: one.total
            for one in found
        }

    async def test_letters_that_people_send_to_a_group_never_overflow(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 1
        await self.kept(store, *_flood("f-1"))
        part = GroupRule(target="g-2", query="version:2.0", at=START, actor="anna")
        await store.set_group_rules("f-2", [_WHOLE], ANNA, "merged into g-1")
        await store.set_group_rules("f-1", [part], ANNA, "split")

        await self.kept(store, *_flood("f-2"))
        await self.kept(store, a_letter(version="2.0"), *_flood("f-2", "f-3"))

        expected = {"f-1": 1, "g-1": 2, "g-2": 1, "overflow": 1}
        assert await self.sizes(store) == expected

    async def test_groups_that_people_named_are_not_counted_as_new(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 2
        await store.set_group_rules("f-1", [_WHOLE], ANNA, "merged into g-1")

        await self.kept(store, *_flood("f-1", "f-2", "f-3", "f-4"))

        expected = {"g-1": 1, "f-2": 1, "f-3": 1, "overflow": 1}
        assert await self.sizes(store) == expected

    async def test_what_people_say_of_an_overflow_group_is_followed(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 1
        flood = _flood("f-1", "f-2", "f-3")
        name = overflow_of(flood[0])
        await self.kept(store, *flood[:2])
        await store.set_group_rules(name, [_WHOLE], ANNA, "merged into g-1")

        await self.kept(store, flood[2])

        assert await self.sizes(store) == {"f-1": 1, "overflow": 1, "g-1": 1}

    async def test_letters_move_out_of_an_overflow_group_and_back(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 1
        flood = _flood("f-1", "f-2", "f-3")
        name = overflow_of(flood[0])
        ids = await self.kept(store, *flood)
        resolved = Standing(
            status=GroupStatus.RESOLVED,
            version="1.8",
            since=START + timedelta(hours=1),
        )
        await store.set_group(name, resolved, ANNA)

        out = Regrouping(old=name, new="g-1", ids=(ids[1],))
        assert await store.regroup([out], ANNA) == 1
        assert await self.sizes(store) == {"f-1": 1, "overflow": 1, "g-1": 1}
        found = await store.groups(only_open=False, named="g-1")
        assert found[0].standing == resolved
        back = Regrouping(old="g-1", new=name, ids=(ids[1],))
        assert await store.regroup([back], ANNA) == 1

        assert await self.sizes(store) == {"f-1": 1, "overflow": 2}

    async def test_regrouped_letters_make_no_new_groups_of_today(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 2
        ids = await self.kept(store, *_flood("f-1", "f-1", "f-1"))
        moves = [
            Regrouping(old="f-1", new=f"g-{n}", ids=(id_,)) for n, id_ in enumerate(ids)
        ]
        assert await store.regroup(moves, ANNA) == 3
        store.group_limit = GroupLimit(2)  # as after a restart

        await self.kept(store, *_flood("g-1", "f-2", "f-3"))

        expected = {"g-0": 1, "g-1": 2, "g-2": 1, "f-2": 1, "overflow": 1}
        assert await self.sizes(store) == expected

    async def test_letters_of_older_fingerprints_are_limited_by_their_new_ones(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 1
        old = [
            a_letter(fingerprint=f"1-{n:016x}", error_text="no money") for n in range(3)
        ]

        await self.kept(store, *old)

        ((name, total),) = (await self.sizes(store)).items()
        assert (name[:2], total) == ("2-", 3)
