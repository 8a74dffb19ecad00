"""Contracts of filing: one letter per message, and nothing lost."""

import asyncio
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deadletter.core.attempts import append
from deadletter.core.brake import BrakeKind, BrakeWindow, Release
from deadletter.core.errors import QueryError
from deadletter.core.grouping import GroupLimit, GroupRule, Regrouping, is_overflow, overflow_of
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, GroupStatus, Standing, State
from deadletter.core.message import Lineage, Message
from deadletter.core.query import parse
from deadletter.ports import LetterStore

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench, a_letter, tried_again

_texts = st.text(max_size=12)  # any character, lone surrogates and NUL included
_odd = st.one_of(
    _texts,
    st.text(st.characters(categories=["Cs", "Cc"]), max_size=4),
    st.sampled_from(["\0", "a\0b", "\ud800", "é\udfff", "'; DROP TABLE letters", "%*"]),
)
_maybe = st.none() | _odd
_numbers = count(1)


@st.composite
def odd_letters(draw: st.DrawFn) -> DeadLetter:
    """Letters with anything at all in their texts."""
    message = Message(
        id=draw(_odd),
        body=draw(st.binary(max_size=40)),
        sent_at=START,
        headers=tuple(draw(st.lists(st.tuples(_odd, st.binary(max_size=9))))),
        content_type=draw(_maybe),
        key=draw(_maybe),
        reply_to=draw(_maybe),
        idempotency_key=draw(_maybe),
        traceparent=draw(_maybe),
        tracestate=draw(_maybe),
    )
    letter = a_letter()
    head = replace(
        letter.head,
        message_id=message.id,
        key=message.key,
        business_key=message.idempotency_key,
        source=draw(_odd),
        partition=draw(_odd),
        reason_text=draw(_odd),
        code=draw(_odd),
        error_type=draw(_odd),
        error_text=draw(_odd),
        fingerprint=draw(_odd),
        consumer=draw(_odd),
        version=draw(_odd),
        trace_id=draw(_maybe),
        size=len(message.body),
    )
    return replace(
        letter,
        head=head,
        message=message,
        position=draw(_maybe),
        frame=draw(_odd),
        route=draw(_maybe),
    )


def _never_seen_before(letter: DeadLetter) -> DeadLetter:
    # Examples share a store, and run again while they are shrunk.
    head = letter.head
    partition = f"{head.partition} {next(_numbers)}"
    identity = letter_id(head.source, partition, head.message_id)
    return replace(letter, head=replace(head, partition=partition, id=identity))


class KeepingContract(OfficeBench):
    """Keeping: idempotent, without loss, and byte for byte."""

    async def test_a_kept_letter_comes_back_whole(self, store: LetterStore) -> None:
        letter = a_letter(
            b"\x00\xff",
            headers=(("a", b"\xff"), ("a", b"1")),
            key="k",
            reply_to="replies",
            expires_at=START + timedelta(days=1),
            lineage=Lineage(letter_id="gone", generation=2, campaign="c"),
        )
        letter = replace(
            letter,
            position="offset 7",
            first_received_at=START - timedelta(seconds=1),
            route="orders-dlq",
            retry_wish=True,
        )

        (kept,) = await store.keep([letter])

        assert (kept.id, kept.is_new, kept.conflict) == (letter.id, True, False)
        assert await store.get([letter.id]) == [letter]

    async def test_letters_come_back_in_the_order_asked_for(self, store: LetterStore) -> None:
        one, two, three = await self.kept(store, a_letter(), a_letter(), a_letter())

        found = await store.get([three, "no such letter", one, "\ud800", three, two])

        assert [letter.id for letter in found] == [three, one, three, two]

    async def test_what_few_letters_have_comes_back_from_any_batch(
        self, store: LetterStore
    ) -> None:
        usual = [a_letter() for _ in range(2)]
        rare = [
            a_letter(idempotency_key="o-1"),
            a_letter(trace_id="0af7651916cd43dd8448eb211c80319c"),
            replace(a_letter(), position="3/17"),
        ]

        await store.keep(usual[:1])
        for letter in rare:
            await store.keep([letter])
        mixed = [usual[1], *[replace(a_letter(), position="3/18"), a_letter()]]
        await store.keep(mixed)

        wanted = [usual[0], *rare, *mixed]
        assert list(await store.get([letter.id for letter in wanted])) == wanted

    async def test_small_and_large_bodies_come_back_whole(self, store: LetterStore) -> None:
        sizes = [0, 10, 16_384, 16_385, 1_000_000]
        letters = [a_letter(bytes([i]) * size) for i, size in enumerate(sizes)]

        ids = await self.kept(store, *letters)

        assert [one.message.body for one in await store.get(ids)] == [
            letter.message.body for letter in letters
        ]

    @given(letters=st.lists(odd_letters(), min_size=1, max_size=4))
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,  # see _never_seen_before
            HealthCheck.differing_executors,  # that is what a contract is for
        ],
    )
    async def test_the_oddest_text_comes_back_exactly(
        self, store: LetterStore, letters: list[DeadLetter]
    ) -> None:
        letters = [_never_seen_before(letter) for letter in letters]

        kept = await store.keep(letters)

        assert await store.get([one.id for one in kept]) == letters
        found = {head.id: head for head in await self.all_heads(store)}
        assert [found[one.id] for one in kept] == [letter.head for letter in letters]

    async def test_an_id_that_was_made_up_is_not_believed(self, store: LetterStore) -> None:
        letter = a_letter()
        made_up = replace(letter, head=replace(letter.head, id="mine"))

        ids = await self.kept(store, letter, made_up)

        assert ids == [letter.id, letter.id]

    async def test_the_same_death_kept_twice_changes_nothing(self, store: LetterStore) -> None:
        letter = a_letter()
        await self.kept(store, letter)
        before = await store.get([letter.id]), await store.groups()

        (again,) = await store.keep([letter])

        assert not again.is_new
        assert (await store.get([letter.id]), await store.groups()) == before

    async def test_a_death_told_again_later_does_not_reopen_what_was_closed(
        self, store: LetterStore
    ) -> None:
        # Kept, then a crash before the ack: the next worker gives it up without
        # running it, says so in the story, and counts no attempt.
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await self.moved(store, id_, State.CLOSED)
        told_later = replace(
            letter,
            head=replace(letter.head, dead_at=START + timedelta(hours=1)),
            history=append(
                letter.history, replace(letter.story()[0], number=2, outcome="worker-lost")
            ),
        )

        await self.kept(store, replace(told_later, history=letter.history))
        await self.kept(store, told_later)

        found = await self.one(store, id_)
        assert found.head.state is State.CLOSED
        assert found.head.attempts == 1
        assert found.history == told_later.history
        (group,) = await store.groups(only_open=False)
        assert group.total == 1

    @pytest.mark.parametrize("state", [State.CLOSED, State.DISCARDED], ids=str)
    async def test_a_letter_that_dies_anew_is_reopened(
        self, store: LetterStore, state: State
    ) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await self.moved(store, id_, state)

        (kept,) = await store.keep([tried_again(letter)])

        found = await self.one(store, id_)
        assert not kept.is_new
        assert found.head.state is State.PENDING
        assert found.head.attempts == 2
        assert found.head.dead_at == START + timedelta(seconds=60)
        assert found.head.first_failed_at == START
        assert [attempt.number for attempt in found.story()] == [1, 2]
        assert (await store.audit(target=id_))[-1].action == "reopen"
        assert await self.is_sound(store)

    async def test_a_reviewed_letter_that_dies_anew_stays_reviewed(
        self, store: LetterStore
    ) -> None:
        letter = a_letter()
        (id_,) = await self.kept(store, letter)
        await self.moved(store, id_, State.REVIEWED)

        await self.kept(store, tried_again(letter))

        assert await self.state(store, id_) is State.REVIEWED

    async def test_without_a_story_a_later_time_is_a_new_death(self, store: LetterStore) -> None:
        letter = replace(a_letter(), history="")
        (id_,) = await self.kept(store, letter)
        await self.moved(store, id_, State.CLOSED)
        later = replace(letter.head, dead_at=START + timedelta(seconds=1))

        await self.kept(store, letter)
        same = await self.state(store, id_)
        await self.kept(store, replace(letter, head=later))
        anew = await self.state(store, id_)

        assert (same, anew) == (State.CLOSED, State.PENDING)

    async def test_attempts_never_shrink(self, store: LetterStore) -> None:
        letter = a_letter(attempts=4)
        fewer = replace(letter, head=replace(letter.head, attempts=2))
        (id_,) = await self.kept(store, letter)

        await self.kept(store, fewer)

        assert (await self.one(store, id_)).head.attempts == 4

    async def test_an_older_death_that_arrives_late_only_adds_its_story(
        self, store: LetterStore
    ) -> None:
        letter = a_letter(error_text="the latest")
        older = a_letter(
            message_id=letter.message.id, at=START - timedelta(days=1), error_text="an old one"
        )
        (id_,) = await self.kept(store, letter)

        await self.kept(store, older)

        found = await self.one(store, id_)
        assert found.head.error_text == "the latest"
        assert found.head.dead_at == START
        assert found.head.first_failed_at == START - timedelta(days=1)
        assert len(found.story()) == 2

    async def test_many_who_keep_one_letter_at_once_keep_one_letter(
        self, store: LetterStore
    ) -> None:
        letter = a_letter()
        tellings = [
            replace(
                tried_again(letter, later=float(n)),
                head=replace(letter.head, dead_at=START + timedelta(seconds=n)),
            )
            for n in range(8)
        ]

        answers = await asyncio.gather(*(store.keep([one]) for one in tellings))

        assert sum(answer.is_new for (answer,) in answers) == 1
        (head,) = await self.all_heads(store)
        lines = {line for one in tellings for line in one.history.split("\n")}
        assert set((await self.one(store, head.id)).history.split("\n")) == lines
        assert await store.counts() == {"orders": {State.PENDING: 1}}
        assert await self.is_sound(store)

    async def test_an_id_reused_for_another_body_is_kept_apart(self, store: LetterStore) -> None:
        letter, other = a_letter(b"one", message_id="m"), a_letter(b"2", message_id="m")
        await self.kept(store, letter)

        (kept,) = await store.keep([other])
        (again,) = await store.keep([other])

        apart = letter_id("orders", "", "m", body_digest(b"2"))
        assert (kept.id, kept.is_new, kept.conflict) == (apart, True, True)
        assert (again.id, again.is_new, again.conflict) == (apart, False, True)
        found = await store.get([letter.id, apart])
        assert [one.message.body for one in found] == [b"one", b"2"]
        assert [one.head.conflict for one in found] == [False, True]

    async def test_a_letter_kept_apart_elsewhere_stays_apart(self, store: LetterStore) -> None:
        # Moving letters from one office to another, in whatever order.
        other = a_letter(b"2", message_id="m", conflict=True)
        apart = letter_id("orders", "", "m", body_digest(b"2"))
        other = replace(other, head=replace(other.head, id=apart))

        answers = await store.keep([other, a_letter(b"one", message_id="m"), other])

        assert [one.id for one in answers] == [apart, letter_id("orders", "", "m"), apart]
        assert [one.conflict for one in answers] == [True, False, True]

    async def test_one_batch_may_hold_the_same_letter_and_its_rivals(
        self, store: LetterStore
    ) -> None:
        letter, rival = a_letter(b"one", message_id="m"), a_letter(b"2", message_id="m")
        batch = [letter, rival, tried_again(letter), letter, rival, a_letter()]

        answers = await store.keep(batch)

        assert [one.is_new for one in answers] == [True, True, False, False, False, True]
        assert [one.conflict for one in answers] == [False, True, False, False, True, False]
        assert len(await self.all_heads(store)) == 3
        assert (await self.one(store, letter.id)).head.attempts == 2
        assert sum(group.total for group in await store.groups()) == 4
        assert await self.is_sound(store)

    async def test_partitions_and_sources_keep_letters_apart(self, store: LetterStore) -> None:
        letters = [
            a_letter(message_id="m"),
            a_letter(message_id="m", partition="1"),
            a_letter(message_id="m", source="returns"),
        ]

        answers = await store.keep(letters)

        assert len({one.id for one in answers}) == 3
        assert not any(one.conflict for one in answers)

    async def test_keeping_nothing_is_fine(self, store: LetterStore) -> None:
        assert list(await store.keep([])) == []


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

    async def test_letters_move_out_of_an_overflow_group_and_back(self, store: LetterStore) -> None:
        store.group_limit.per_day = 1
        flood = _flood("f-1", "f-2", "f-3")
        name = overflow_of(flood[0])
        ids = await self.kept(store, *flood)
        resolved = Standing(
            status=GroupStatus.RESOLVED, version="1.8", since=START + timedelta(hours=1)
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

    async def test_regrouped_letters_make_no_new_groups_of_today(self, store: LetterStore) -> None:
        store.group_limit.per_day = 2
        ids = await self.kept(store, *_flood("f-1", "f-1", "f-1"))
        moves = [Regrouping(old="f-1", new=f"g-{n}", ids=(id_,)) for n, id_ in enumerate(ids)]
        assert await store.regroup(moves, ANNA) == 3
        store.group_limit = GroupLimit(2)  # as after a restart

        await self.kept(store, *_flood("g-1", "f-2", "f-3"))

        expected = {"g-0": 1, "g-1": 2, "g-2": 1, "f-2": 1, "overflow": 1}
        assert await self.sizes(store) == expected

    async def test_letters_of_older_fingerprints_are_limited_by_their_new_ones(
        self, store: LetterStore
    ) -> None:
        store.group_limit.per_day = 1
        old = [a_letter(fingerprint=f"1-{n:016x}", error_text="no money") for n in range(3)]

        await self.kept(store, *old)

        ((name, total),) = (await self.sizes(store)).items()
        assert (name[:2], total) == ("2-", 3)


_ODD_NAME = "orders\udc80\0é"


def a_window(number: int = 1, *, mailbox: str = "orders") -> BrakeWindow:
    """Return a window that is open."""
    at = START + timedelta(minutes=number)
    return BrakeWindow(
        id=f"w-{number:06}",
        mailbox=mailbox,
        kind=BrakeKind.SYSTEMIC,
        cause="KeyError in shop.orders:charge",
        version="1.8",
        text="10 of the last 10 messages failed by one cause",
        opened_at=at,
        seen_at=at,
        held=2,
        attempts=5,
        message_ids=("m-1", "m-2"),
    )


class WindowsContract(OfficeBench):
    """Windows are written again and again, listed, released and forgotten."""

    async def test_windows_are_listed_latest_first(self, store: LetterStore) -> None:
        windows = [a_window(1), a_window(2, mailbox="mails"), a_window(3)]
        for window in windows:
            assert await store.save_window(window) == window

        assert list(await store.windows()) == windows[::-1]
        assert list(await store.windows(mailbox="orders")) == [windows[2], windows[0]]
        assert list(await store.windows(mailbox="mails", limit=1)) == [windows[1]]
        assert list(await store.windows(limit=2)) == windows[:0:-1]
        assert list(await store.windows(mailbox="others")) == []

    async def test_letters_that_died_in_an_outage_are_found(self, store: LetterStore) -> None:
        ended = START + timedelta(minutes=20)
        seen_at = START + timedelta(hours=1)
        for window in (
            replace(
                a_window(1),
                kind=BrakeKind.OUTAGE,
                opened_at=START + timedelta(minutes=10),
                seen_at=seen_at,
                closed_at=ended,
            ),
            replace(a_window(2, mailbox="mails"), opened_at=ended, seen_at=seen_at),
        ):
            await store.save_window(window)
        for minutes, source in ((5, "orders"), (10, "orders"), (15, "mails"), (20, "orders")):
            at = START + timedelta(minutes=minutes)
            await self.kept(store, a_letter(at=at, source=source, message_id=f"m-{minutes}"))
        late = START + timedelta(minutes=30)
        await self.kept(store, a_letter(at=late, source="mails", message_id="m-30"))

        async def found(query: str) -> set[str]:
            page = await store.find(parse(query), limit=20)
            return {head.message_id for head in page.heads}

        assert await found("during:outage") == await found("during:w-000001") == {"m-10"}
        assert await found("during:systemic") == {"m-30"}
        assert await found("during:any") == {"m-10", "m-30"}
        assert await found("!during:any source:orders") == {"m-5", "m-20"}
        assert await found("during:[w-000001,systemic] source:mails") == {"m-30"}
        with pytest.raises(QueryError, match="there is no outage w-unknown"):
            await found("during:w-unknown")

    async def test_a_window_is_written_again_until_it_is_closed(self, store: LetterStore) -> None:
        window = a_window()
        await store.save_window(window)
        later = window.opened_at + timedelta(hours=1)
        ended = replace(window, seen_at=later, closed_at=later, ending="over", held=9)

        await store.save_window(ended)

        assert list(await store.windows()) == [ended]

    async def test_odd_names_and_ids_are_kept_as_they_are(self, store: LetterStore) -> None:
        window = replace(a_window(mailbox=_ODD_NAME), message_ids=("\udcff", "\0"))

        await store.save_window(window)

        assert list(await store.windows(mailbox=_ODD_NAME)) == [window]

    async def test_releasing_is_seen_by_whoever_writes_next_and_audited(
        self, store: LetterStore, clock: FakeClock
    ) -> None:
        window, other = a_window(1), a_window(2, mailbox="mails")
        over = replace(a_window(3), closed_at=START)
        for one in (window, other, over):
            await store.save_window(one)

        count = await store.release_windows("orders", ANNA)

        assert count == 1
        release = Release(ANNA.actor, ANNA.reason, clock.now())
        written = await store.save_window(replace(window, held=7))
        assert written == replace(window, held=7, release=release)
        assert [one.release is None for one in await store.windows()] == [True, True, False]
        (entry,) = await store.audit(target="orders")
        assert (entry.action, entry.actor) == ("release-brake", ANNA.actor)
        assert await self.is_sound(store)

    async def test_releasing_nothing_is_not_audited(self, store: LetterStore) -> None:
        assert await store.release_windows("orders", ANNA) == 0
        assert not await store.audit(target="orders")

    async def test_the_oldest_windows_are_forgotten(self, store: LetterStore) -> None:
        windows = [a_window(n) for n in range(5)]
        for window in windows:
            await store.save_window(window, keep=3)

        assert list(await store.windows()) == windows[:1:-1]
