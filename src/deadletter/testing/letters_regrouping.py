"""What an office promises when letters change their group."""

from datetime import timedelta

from deadletter.core.letter import DeadLetter, GroupStatus, Standing, State
from deadletter.core.regrouping import GroupRule, Regrouping
from deadletter.ports import LetterStore

from .fakes import START
from .letters_bench import ANNA, OfficeBench, a_letter

_LATER = START + timedelta(hours=1)
_MUTED = Standing(status=GroupStatus.MUTED, since=_LATER, owner="bo", note="known")


class RegroupingContract(OfficeBench):
    """Letters that change their group, and rules about letters to come."""

    async def names(self, store: LetterStore) -> dict[str, int]:
        """All groups, with the letters in them."""
        found = await store.groups(only_open=False)
        return {one.fingerprint: sum(one.counts.values()) for one in found}

    async def test_letters_move_with_what_was_said_of_their_group(
        self, store: LetterStore
    ) -> None:
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

    async def test_of_groups_that_become_one_nothing_is_hidden(
        self, store: LetterStore
    ) -> None:
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

    async def test_letters_that_left_already_stay_where_they_are(
        self, store: LetterStore
    ) -> None:
        ids = await self.kept(store, *self.letters(2))
        await store.regroup([self.moving(ids[:1], "g-1")], ANNA)

        again = await store.regroup([self.moving([*ids, "nothing"], "g-2")], ANNA)

        assert again == 1
        assert await self.names(store) == {"g-1": 1, "g-2": 1}
        assert await store.regroup([self.moving(ids, "g-3")], ANNA) == 0
        assert await self.is_sound(store)

    async def test_letters_to_come_follow_the_rules_of_people(
        self, store: LetterStore
    ) -> None:
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
