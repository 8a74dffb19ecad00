"""What an office promises about acts: compare and set, counted, audited."""

import asyncio
from datetime import timedelta

import pytest

from deadletter.core.chain import check_chain
from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import MOVES, By, State
from deadletter.ports import LetterStore, Move

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_letter, tried_again

_EVERY = frozenset(State)


class ReviewingContract(OfficeBench):
    """Moves, notes, the audit, purging and expiry."""

    @pytest.mark.parametrize("old", State)
    async def test_only_allowed_moves_are_made(
        self, store: LetterStore, old: State
    ) -> None:
        for new in State:
            (id_,) = await self.kept(store, a_letter(state=old))

            moved = await store.move(Move(ids=(id_,), old=_EVERY, new=new), ANNA)

            allowed = new in MOVES[old]
            assert moved == ([id_] if allowed else [])
            assert await self.state(store, id_) is (new if allowed else old)
        assert await self.is_sound(store)

    async def test_a_letter_in_another_state_than_asked_for_does_not_move(
        self, store: LetterStore
    ) -> None:
        one, two = await self.kept(store, a_letter(), a_letter())
        await self.moved(store, one, State.REVIEWED)

        moved = await store.move(
            Move(ids=(one, two, "?"), old=frozenset({State.PENDING}), new=State.CLOSED),
            ANNA,
        )

        assert moved == [two]
        assert await self.state(store, one) is State.REVIEWED

    async def test_of_many_who_move_a_letter_at_once_one_wins(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store)
        move = Move(ids=(id_,), old=frozenset({State.PENDING}), new=State.REPLAYING)

        answers = await asyncio.gather(
            *(store.move(move, By(f"operator {n}")) for n in range(20))
        )

        assert sorted(map(len, answers)) == [0] * 19 + [1]
        assert len(await store.audit(target=id_)) == 1
        assert await self.is_sound(store)

    async def test_every_change_is_another_revision(self, store: LetterStore) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)

        await self.moved(store, id_, State.REVIEWED, State.CLOSED)
        await self.kept(store, tried_again(letter))

        assert (await self.one(store, id_)).head.revision == 3

    async def test_many_letters_are_moved_in_one_go(self, store: LetterStore) -> None:
        ids = await self.kept(store, *(a_letter() for _ in range(300)))
        move = Move(ids=(*ids, ids[0]), old=_EVERY, new=State.REVIEWED)

        moved = await store.move(move, ANNA)

        assert moved == ids
        assert await store.counts() == {"orders": {State.REVIEWED: 300}}
        assert len(await store.audit(limit=1000)) == 300
        assert await self.is_sound(store)

    async def test_acts_are_audited_with_who_and_why(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        one, two = await self.kept(store, a_letter(), a_letter())
        clock.advance(5)
        await self.moved(store, one, State.REVIEWED)
        assert await store.note([one, two, "?"], "call them", ANNA) == [one, two]
        await store.record("pause", "orders", By("bo"), "for lunch")

        entries = await store.audit()

        assert [(e.action, e.target, e.detail) for e in entries] == [
            ("move", one, "pending to reviewed"),
            ("note", one, "call them"),
            ("note", two, "call them"),
            ("pause", "orders", "for lunch"),
        ]
        assert {(e.actor, e.reason) for e in entries[:3]} == {("anna", ANNA.reason)}
        assert entries[0].at == START + timedelta(seconds=5)
        assert list(check_chain(entries)) == []

    async def test_the_audit_is_read_in_pages_and_by_target(
        self, store: LetterStore
    ) -> None:
        for n in range(5):
            await store.record("act", f"target {n % 2}", ANNA, str(n))

        first = await store.audit(limit=2)
        rest = await store.audit(after=first[-1].seq)
        of_one = await store.audit(target="target 1", after=2)

        assert [entry.detail for entry in first] == ["0", "1"]
        assert [entry.detail for entry in rest] == ["2", "3", "4"]
        assert [entry.detail for entry in of_one] == ["3"]

    async def test_odd_words_are_audited_as_they_are(self, store: LetterStore) -> None:
        odd = "\0\ud800'; --\n"

        await store.record(odd, odd, By(odd, odd), odd)

        (entry,) = await store.audit(target=odd)
        assert (entry.actor, entry.reason, entry.detail) == (odd, odd, odd)
        assert await self.is_sound(store)

    async def test_a_purged_letter_is_gone_but_not_forgotten(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(b"secret")
        (id_,) = await self.kept(store, letter)

        assert await store.purge([id_, "?"], ANNA) == [id_]

        assert await store.get([id_]) == []
        assert await self.all_heads(store) == []
        assert await store.counts() == {}
        assert [entry.action for entry in await store.audit(target=id_)] == ["purge"]
        (group,) = await store.groups(only_open=False)
        assert (group.total, group.counts) == (1, {})
        assert await self.is_sound(store)

    async def test_what_a_group_says_goes_with_its_last_letter(
        self, store: LetterStore
    ) -> None:
        one, two = await self.kept(store, a_letter(b"1"), a_letter(b"2"))
        (before,) = await store.groups(only_open=False)

        await store.purge([one], ANNA)
        (with_one,) = await store.groups(only_open=False)
        await store.purge([two], ANNA)
        (empty,) = await store.groups(only_open=False)
        acts = await store.audit(target=before.fingerprint)
        await self.kept(store, a_letter(b"3"))
        (again,) = await store.groups(only_open=False)

        assert before.text
        assert with_one.text == again.text == before.text
        assert (empty.text, empty.frame, empty.code) == ("", "", "")
        assert empty.error_type == before.error_type
        assert [(act.action, act.actor) for act in acts] == [("blank", ANNA.actor)]
        assert await self.is_sound(store)

    async def test_it_does_so_when_that_letter_expires(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter())
        await self.moved(store, id_, State.CLOSED)

        await store.expire(before={State.CLOSED: START + timedelta(days=9)}, by=ANNA)

        (group,) = await store.groups(only_open=False)
        assert (group.text, group.frame, group.code) == ("", "", "")

    async def test_a_purged_letter_that_dies_again_is_a_new_one(
        self, store: LetterStore
    ) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await store.purge([id_], ANNA)

        (kept,) = await store.keep([letter])

        assert (kept.id, kept.is_new) == (id_, True)
        assert await self.is_sound(store)

    async def test_a_letter_being_replayed_is_not_purged(
        self, store: LetterStore
    ) -> None:
        one, two = await self.kept(store, a_letter(), a_letter())
        await self.moved(store, two, State.REPLAYING)

        with pytest.raises(Conflict, match="replaying"):
            await store.purge([one, two], ANNA)

        assert len(await store.get([one, two])) == 2
        assert await self.is_sound(store)

    async def test_finished_letters_expire_oldest_first(
        self, store: LetterStore
    ) -> None:
        letters = [
            a_letter(at=START + timedelta(days=n), state=state)
            for n, state in enumerate([State.CLOSED, State.CLOSED, State.DISCARDED] * 2)
        ]
        ids = await self.kept(store, *letters)
        before = {
            State.CLOSED: START + timedelta(days=4),
            State.DISCARDED: START + timedelta(days=3),
        }

        first = await store.expire(before=before, by=ANNA, limit=2)
        left = [head.id for head in await self.all_heads(store)]
        second = await store.expire(before=before, by=ANNA, limit=2)
        third = await store.expire(before=before, by=ANNA, limit=2)

        assert (first, second, third) == (2, 2, 0)
        assert left == [ids[n] for n in (5, 4, 3, 2)]
        assert [head.id for head in await self.all_heads(store)] == [ids[5], ids[4]]
        assert [e.action for e in await store.audit()] == ["expire"] * 4
        assert await self.is_sound(store)

    @pytest.mark.parametrize(
        "state", [State.PENDING, State.REVIEWED, State.REPLAYING, State.QUARANTINED]
    )
    async def test_what_needs_somebody_never_expires(
        self, store: LetterStore, state: State
    ) -> None:
        ids = await self.kept(
            store, a_letter(state=state), a_letter(state=State.CLOSED)
        )
        never = START + timedelta(days=36500)

        with pytest.raises(ConfigError, match="never expire"):
            await store.expire(before={State.CLOSED: never, state: never}, by=ANNA)

        assert len(await store.get(ids)) == 2
