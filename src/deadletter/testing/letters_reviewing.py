"""Contracts of reviews and edits: compare-and-set, counted, audited."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from deadletter.core.errors import ConfigError, Conflict, NotFound
from deadletter.core.ids import letter_id
from deadletter.core.letter import MOVES, OPEN, By, DeadLetter, State
from deadletter.core.message import Message
from deadletter.core.seals import check_chain
from deadletter.ports import LetterStore, Move

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_campaign, a_letter, copy_that_died, tried_again

_EVERY = frozenset(State)


class ReviewingContract(OfficeBench):
    """Moves, notes, the audit, purging and expiry."""

    @pytest.mark.parametrize("old", State)
    async def test_only_allowed_moves_are_made(self, store: LetterStore, old: State) -> None:
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
            Move(ids=(one, two, "?"), old=frozenset({State.PENDING}), new=State.CLOSED), ANNA
        )

        assert moved == [two]
        assert await self.state(store, one) is State.REVIEWED

    async def test_of_many_who_move_a_letter_at_once_one_wins(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        move = Move(ids=(id_,), old=frozenset({State.PENDING}), new=State.REPLAYING)

        answers = await asyncio.gather(*(store.move(move, By(f"operator {n}")) for n in range(20)))

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

    async def test_the_audit_is_read_in_pages_and_by_target(self, store: LetterStore) -> None:
        for n in range(5):
            await store.record("act", f"target {n % 2}", ANNA, str(n))

        first = await store.audit(limit=2)
        rest = await store.audit(after=first[-1].seq)
        of_one = await store.audit(target="target 1", after=2)

        assert [entry.detail for entry in first] == ["0", "1"]
        assert [entry.detail for entry in rest] == ["2", "3", "4"]
        assert [entry.detail for entry in of_one] == ["3"]

    async def test_the_audit_is_read_newest_first_by_actor_action_and_target(
        self, store: LetterStore
    ) -> None:
        bo = By("bo \0", "again")
        for n in range(6):
            await store.record(f"act {n % 2}", f"target {n % 3}", bo if n > 3 else ANNA, str(n))

        async def details(**wanted: Any) -> list[str]:
            return [entry.detail for entry in await store.latest_audit(**wanted)]

        assert await details() == ["5", "4", "3", "2", "1", "0"]
        assert await details(limit=2) == ["5", "4"]
        assert await details(before=5, limit=2) == ["3", "2"]
        assert await details(actor=bo.actor) == ["5", "4"]
        assert await details(action="act 1", before=5) == ["3", "1"]
        assert await details(target="target 1") == ["4", "1"]
        assert await details(actor=ANNA.actor, action="act 0", target="target 2") == ["2"]
        assert await details(actor="nobody") == []
        assert list(check_chain(reversed(await store.latest_audit()))) == []

    async def test_odd_words_are_audited_as_they_are(self, store: LetterStore) -> None:
        odd = "\0\ud800'; --\n"

        await store.record(odd, odd, By(odd, odd), odd)

        (entry,) = await store.audit(target=odd)
        assert (entry.actor, entry.reason, entry.detail) == (odd, odd, odd)
        assert await self.is_sound(store)

    async def test_a_purged_letter_is_gone_but_not_forgotten(self, store: LetterStore) -> None:
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

    async def test_what_a_group_says_goes_with_its_last_letter(self, store: LetterStore) -> None:
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

    async def test_it_does_so_when_that_letter_expires(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store, a_letter())
        await self.moved(store, id_, State.CLOSED)

        await store.expire(before={State.CLOSED: START + timedelta(days=9)}, by=ANNA)

        (group,) = await store.groups(only_open=False)
        assert (group.text, group.frame, group.code) == ("", "", "")

    async def test_a_purged_letter_that_dies_again_is_a_new_one(self, store: LetterStore) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await store.purge([id_], ANNA)

        (kept,) = await store.keep([letter])

        assert (kept.id, kept.is_new) == (id_, True)
        assert await self.is_sound(store)

    async def test_a_letter_being_replayed_is_not_purged(self, store: LetterStore) -> None:
        one, two = await self.kept(store, a_letter(), a_letter())
        await self.moved(store, two, State.REPLAYING)

        with pytest.raises(Conflict, match="replaying"):
            await store.purge([one, two], ANNA)

        assert len(await store.get([one, two])) == 2
        assert await self.is_sound(store)

    async def test_finished_letters_expire_oldest_first(self, store: LetterStore) -> None:
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
        ids = await self.kept(store, a_letter(state=state), a_letter(state=State.CLOSED))
        never = START + timedelta(days=36500)

        with pytest.raises(ConfigError, match="never expire"):
            await store.expire(before={State.CLOSED: never, state: never}, by=ANNA)

        assert len(await store.get(ids)) == 2


_ODD_BYTES = bytes(range(256)) + b"\r\n\x00\xff"
_HEADERS = (("tenant", b"eu"), ("tenant", b"\xff\x00"), ("odd \ud800", b""))


class EditingContract(OfficeBench):
    """Another message in a letter, and the one that died beside it."""

    async def edited(self, store: LetterStore, id_: str, **changes: Any) -> DeadLetter:
        """Edit a letter as it is now, and give it back."""
        letter = await self.one(store, id_)
        after = replace(letter.message, **changes)
        revision = letter.head.revision
        new = await store.edit(id_, after, revision=revision, by=ANNA)
        assert new == revision + 1
        return await self.one(store, id_)

    async def test_an_edited_letter_has_the_new_message_and_the_one_that_died(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(_ODD_BYTES, headers=_HEADERS, key="k-1", content_type="a/b")
        (id_,) = await self.kept(store, letter)

        now = await self.edited(store, id_, body=b"\x00new", headers=(("a", b"\xfe"),), key="k-2")

        assert now.message.body == b"\x00new"
        assert now.message.headers == (("a", b"\xfe"),)
        assert now.original == letter.message
        assert await store.original(id_) == letter.message
        assert (now.head.key, now.head.size) == ("k-2", 4)
        assert replace(now.head, key="k-1", size=letter.head.size, revision=0) == (letter.head)
        assert await self.is_sound(store)

    async def test_what_died_stays_through_every_further_edit(self, store: LetterStore) -> None:
        letter = a_letter(b"first", key="k")
        (id_,) = await self.kept(store, letter)

        await self.edited(store, id_, body=b"second")
        await self.edited(store, id_, body=b"third", key=None)
        last = await self.edited(store, id_, body=b"first", key="k")

        assert last.message == last.original == letter.message
        assert last.head.revision == 3
        assert await self.is_sound(store)

    async def test_a_letter_nobody_edited_has_no_original(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)

        assert await store.original(id_) is None
        assert (await self.one(store, id_)).original is None
        assert await store.original("no such letter") is None

    async def test_bodies_of_any_size_can_take_each_others_place(self, store: LetterStore) -> None:
        large, larger = b"l" * 300_000, b"L" * 9_000_000
        letter = a_letter(large)
        (id_,) = await self.kept(store, letter)

        assert (await self.edited(store, id_, body=larger)).message.body == larger
        assert (await self.edited(store, id_, body=b"")).message.body == b""
        assert (await self.edited(store, id_, body=large[1:])).original == (letter.message)
        assert await self.is_sound(store)

    async def test_an_edit_of_another_revision_is_refused(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        letter = await self.one(store, id_)
        await self.moved(store, id_, State.REVIEWED)

        with pytest.raises(Conflict, match="revision 1, not 0"):
            await store.edit(id_, replace(letter.message, body=b"late"), revision=0, by=ANNA)

        assert (await self.one(store, id_)).message == letter.message
        assert [entry.action for entry in await store.audit(target=id_)] == ["move"]

    async def test_of_many_who_edit_a_letter_at_once_one_wins(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store)
        message = (await self.one(store, id_)).message

        answers = await asyncio.gather(
            *(
                store.edit(id_, replace(message, body=b"%d" % n), revision=0, by=By(f"op {n}"))
                for n in range(10)
            ),
            return_exceptions=True,
        )

        assert [answer for answer in answers if answer == 1] == [1]
        assert sum(isinstance(answer, Conflict) for answer in answers) == 9
        letter = await self.one(store, id_)
        assert letter.message.body == b"%d" % answers.index(1)
        assert letter.original == message
        assert await self.is_sound(store)

    @pytest.mark.parametrize("state", State)
    async def test_only_open_letters_can_be_edited(self, store: LetterStore, state: State) -> None:
        (id_,) = await self.kept(store, a_letter(state=state))

        if state in OPEN:
            assert (await self.edited(store, id_, body=b"!")).head.state is state
            return
        with pytest.raises(Conflict, match=f"is {state}"):
            await self.edited(store, id_, body=b"!")

    async def test_a_letter_that_is_not_there_cannot_be_edited(self, store: LetterStore) -> None:
        with pytest.raises(NotFound):
            await store.edit(
                "no such letter", Message(id="m", body=b"", sent_at=START), revision=0, by=ANNA
            )

    @pytest.mark.parametrize(
        "changes",
        [
            {"id": "another"},
            {"idempotency_key": "another"},
            {"reply_to": "elsewhere", "body": b"!"},
            {"expires_at": START},
            {},
        ],
    )
    async def test_what_says_which_message_it_is_cannot_be_edited(
        self, store: LetterStore, changes: dict[str, Any]
    ) -> None:
        (id_,) = await self.kept(store)

        with pytest.raises(ConfigError, match="edit"):
            await self.edited(store, id_, **changes)

        letter = await self.one(store, id_)
        assert (letter.original, letter.head.revision) == (None, 0)

    async def test_the_audit_tells_what_was_edited_and_nothing_of_the_contents(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"secret-1"))

        await self.edited(store, id_, body=b"secret-22", key="secret-3")

        (entry,) = await store.audit(target=id_)
        assert (entry.action, entry.actor, entry.reason) == ("edit", ANNA.actor, ANNA.reason)
        assert entry.detail == "body (8 to 9 bytes), key"

    async def test_a_replay_sends_the_edited_message(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store, a_letter(b"broken"))
        letter = await self.edited(store, id_, body=b"mended", headers=(("a", b"b"),))

        (taken,) = await self.taken(store, id_)

        assert taken.message == letter.message
        assert (taken.message.body, taken.generation) == (b"mended", 1)

    async def test_an_edited_copy_that_dies_comes_back_to_its_letter(
        self, store: LetterStore
    ) -> None:
        died = a_letter(b"broken")
        (id_,) = await self.kept(store, died)
        await self.edited(store, id_, body=b"mended")
        (taken,) = await self.taken(store, id_)

        (kept,) = await store.keep([copy_that_died(taken)])

        letter = await self.one(store, id_)
        assert (kept.id, kept.conflict) == (id_, False)
        assert (letter.message.body, letter.original) == (b"mended", died.message)
        assert letter.head.state is State.PENDING
        assert letter.head.attempts == 2
        assert await self.is_sound(store)

    @pytest.mark.parametrize("body", [b"broken", b"mended"])
    async def test_neither_body_is_taken_for_another_message(
        self, store: LetterStore, body: bytes
    ) -> None:
        died = a_letter(b"broken")
        (id_,) = await self.kept(store, died)
        await self.edited(store, id_, body=b"mended")

        again = replace(died, message=replace(died.message, body=body))
        (kept,) = await store.keep([tried_again(again)])

        assert (kept.id, kept.is_new, kept.conflict) == (id_, False, False)
        assert (await self.one(store, id_)).message.body == b"mended"

    async def test_another_body_is_still_another_message(self, store: LetterStore) -> None:
        died = a_letter(b"broken")
        (id_,) = await self.kept(store, died)
        await self.edited(store, id_, body=b"mended")

        other = replace(died, message=replace(died.message, body=b"other"))
        (kept,) = await store.keep([other])

        assert kept.id != id_
        assert kept.conflict
        assert (await self.one(store, kept.id)).message.body == b"other"

    async def test_a_letter_edited_elsewhere_is_kept_with_what_died(
        self, store: LetterStore
    ) -> None:
        died = a_letter(b"x" * 300_000)
        mended = replace(died.message, body=b"mended", key="k")
        head = replace(died.head, size=6, key="k", state=State.CLOSED)
        letter = replace(died, head=head, message=mended, original=died.message)

        first, again = await store.keep([letter, died])

        assert (first.id, again.id, again.is_new) == (died.id, died.id, False)
        assert await self.one(store, died.id) == letter
        assert await store.original(died.id) == died.message
        assert await self.is_sound(store)

    async def test_purging_leaves_nothing_of_either(self, store: LetterStore) -> None:
        letter = a_letter(b"x" * 300_000)
        (id_,) = await self.kept(store, letter)
        await self.edited(store, id_, body=b"y" * 300_000)

        assert await store.purge([id_], ANNA) == [id_]

        assert await store.original(id_) is None
        assert await self.is_sound(store)
        (kept,) = await store.keep([letter])
        assert kept.is_new
        assert await store.original(id_) is None

    async def test_replays_planned_before_an_edit_send_what_is_there_then(
        self, store: LetterStore
    ) -> None:
        (id_,) = await self.kept(store, a_letter(b"broken"))
        campaign = a_campaign()
        await store.plan_replay(campaign, [id_])
        await self.edited(store, id_, body=b"mended")

        (taken,) = await store.take_replay(campaign.id, limit=1)

        assert taken.message.body == b"mended"

    async def test_a_letter_keeps_its_identity(self, store: LetterStore) -> None:
        (id_,) = await self.kept(store, a_letter(b"broken", key="k"))

        head = (await self.edited(store, id_, body=b"mended", key="other")).head

        assert head.id == letter_id(head.source, head.partition, head.message_id)
