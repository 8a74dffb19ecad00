"""
An office driven beside a model, step by step, by hypothesis.

Both share a clock and get the same calls; after every step they must have given
the same answers and hold the same letters, and everything must add up. A
backend's test is a subclass that says how to open both, and
`TestName = Subclass.TestCase`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from deadletter.core.campaign import CampaignState, Outcome
from deadletter.core.errors import DeadLetterError
from deadletter.core.letter import By, DeadLetter, GroupStatus, Standing, State
from deadletter.core.letter_filing import FINISHED
from deadletter.core.message import Message
from deadletter.ports import LetterStore, Move, ReplaySettled, ReplayTaken
from deadletter.testing.fakes import START, FakeClock
from deadletter.testing.letters_bench import a_campaign, a_letter, copy_that_died, tried_again

T = TypeVar("T")
Call = Callable[[LetterStore], Coroutine[Any, Any, Any]]

_NAMES = ("c-1", "c-2", "c-3")
_BY = By("anna", "because")
_ASKED = frozenset({GroupStatus.ONGOING, GroupStatus.REGRESSED})

_states = st.sampled_from(State)
_some = st.lists(st.integers(0, 30), max_size=6)
_names = st.sampled_from(_NAMES)


class LettersMachine(RuleBasedStateMachine):
    """Calls both offices alike and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.told: list[DeadLetter] = []  # every death ever told
        self.ids: list[str] = ["no such letter"]
        self.copies: list[ReplayTaken] = []
        self.attempts: dict[str, int] = {}
        self._runner = asyncio.Runner()

    async def open(self) -> LetterStore:
        """Return the office under test, on `self.clock`; again after `close`."""
        raise AssertionError("say how to open your office")

    async def close(self) -> None:
        """Let go of the office under test; what is in it must stay."""

    async def open_model(self) -> LetterStore:
        """Return the office that is right, on `self.clock`."""
        raise AssertionError("say how to open the model")

    @initialize()
    def begin(self) -> None:
        self.store = self._run(self.open())
        self.model = self._run(self.open_model())

    @rule(
        numbers=st.lists(st.integers(0, 6), min_size=1, max_size=5),
        body=st.sampled_from([b"", b"one", b"another"]),
        group=st.sampled_from(["f-1", "f-2"]),
        source=st.sampled_from(["orders", "returns"]),
        version=st.sampled_from(["1.7", "1.10"]),
    )
    def keep(self, numbers: list[int], body: bytes, group: str, source: str, version: str) -> None:
        """New ones, the same again, and ids reused for another body."""
        self._keep(
            [
                a_letter(
                    body,
                    message_id=f"m-{number}",
                    fingerprint=group,
                    source=source,
                    version=version,
                    at=self.clock.now() + timedelta(seconds=number % 3),
                )
                for number in numbers
            ]
        )

    @rule(some=_some, later=st.sampled_from([-5.0, 0.0, 5.0]))
    def keep_again(self, some: list[int], later: float) -> None:
        """Deaths told before, as they were and after one more attempt."""
        chosen = [self.told[n % len(self.told)] for n in some if self.told]
        self._keep([*chosen, *(tried_again(one, later=later) for one in chosen[:2])])

    @rule(
        some=_some,
        later=st.sampled_from([1.0, 60.0]),
        body=st.sampled_from([None, None, b"changed"]),
    )
    def keep_copies(self, some: list[int], later: float, body: bytes | None) -> None:
        """Copies of whatever generation and body, given up by their consumer."""
        chosen = [self.copies[n % len(self.copies)] for n in some if self.copies]
        died = [copy_that_died(copy, later=later) for copy in chosen]
        if body is not None:
            died[:1] = [
                replace(
                    one,
                    head=replace(one.head, size=len(body)),
                    message=replace(one.message, body=body),
                )
                for one in died[:1]
            ]
        self._keep(died)

    @rule(some=_some, old=st.sets(_states, min_size=4), new=_states)
    def move(self, some: list[int], old: set[State], new: State) -> None:
        move = Move(ids=self._chosen(some), old=frozenset(old), new=new)
        self._both(lambda store: store.move(move, _BY))

    @rule(some=_some)
    def note(self, some: list[int]) -> None:
        self._both(lambda store: store.note(self._chosen(some), "so it is", _BY))

    @rule(
        which=st.integers(0, 30),
        body=st.sampled_from([b"one", b"mended"]),
        key=st.sampled_from([None, "k-1"]),
        late=st.booleans(),
    )
    def edit(self, which: int, body: bytes, key: str | None, late: bool) -> None:
        """As somebody has seen it, or as it was before."""
        (id_,) = self._chosen([which])

        async def work(store: LetterStore) -> int:
            message, revision = Message(id="?", body=b"", sent_at=START), 0
            for letter in await store.get([id_]):
                message, revision = letter.message, letter.head.revision - late
            message = replace(message, body=body, key=key)
            return await store.edit(id_, message, revision=revision, by=_BY)

        self._both(work)

    @rule(some=_some)
    def purge(self, some: list[int]) -> None:
        self._both(lambda store: store.purge(self._chosen(some[:2]), _BY))

    @rule(states=st.sets(_states, max_size=2), limit=st.integers(1, 4))
    def expire(self, states: set[State], limit: int) -> None:
        before = dict.fromkeys(
            sorted(states | {State.CLOSED}), self.clock.now() - timedelta(seconds=3)
        )
        self._both(lambda store: store.expire(before=before, by=_BY, limit=limit))
        if not states <= FINISHED:
            assert self.refused, "what still needs somebody never expires"

    @rule(name=_names, some=_some, cap=st.integers(1, 3), limit=st.integers(0, 5))
    def plan(self, name: str, some: list[int], cap: int, limit: int) -> None:
        campaign = a_campaign(name, cap=cap)
        self._both(lambda store: store.plan_replay(campaign, self._chosen(some)))
        self.take(name, limit)

    @rule(name=_names, limit=st.integers(0, 5))
    def take(self, name: str, limit: int) -> None:
        self.copies += self._both(lambda s: s.take_replay(name, limit=limit)) or []

    @rule(name=_names, some=_some)
    def sent(self, name: str, some: list[int]) -> None:
        self._both(lambda store: store.sent_replay(name, self._chosen(some)))

    @rule(some=_some, failed=st.sets(st.integers(0, 3)))
    def settle(self, some: list[int], failed: set[int]) -> None:
        chosen = [self.copies[-1 - n % len(self.copies)] for n in some if self.copies]
        news = [
            ReplaySettled(
                copy.letter_id,
                copy.generation,
                Outcome.FAILED if n in failed else Outcome.CONFIRMED,
            )
            for n, copy in enumerate(chosen)
        ]
        self._both(lambda store: store.settle_replays(news))

    @rule(
        group=st.sampled_from(["f-1", "f-2", "f-3"]),
        status=st.sampled_from(GroupStatus),
        version=st.sampled_from(["", "1.8"]),
        snooze=st.sampled_from([None, 5.0]),
    )
    def set_group(
        self, group: str, status: GroupStatus, version: str, snooze: float | None
    ) -> None:
        now = self.clock.now()
        until = None if snooze is None else now + timedelta(seconds=snooze)
        standing = Standing(status=status, since=now, owner="bo", until=until, version=version)
        self._both(lambda store: store.set_group(group, standing, _BY))

    @rule(name=_names, state=st.sampled_from(CampaignState))
    def set_campaign(self, name: str, state: CampaignState) -> None:
        self._both(lambda store: store.set_campaign(name, state, _BY))

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        self._run(self.close())
        self.store = self._run(self.open())

    @invariant()
    def both_hold_the_same(self) -> None:
        if hasattr(self, "model"):
            self._both(self._everything)
            found = self._run(self.store.verify())
            assert found == [], found

    @invariant()
    def attempts_never_shrink(self) -> None:
        if hasattr(self, "model"):
            there = {letter.id: letter.head for letter in self._both(_all_letters)}
            for id_, head in there.items():
                assert head.attempts >= self.attempts.get(id_, 0)
            self.attempts = {id_: head.attempts for id_, head in there.items()}

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self._run(self.close())
        self._runner.close()

    async def _everything(self, store: LetterStore) -> Any:
        return (
            await _all_letters(store),
            await store.counts(),
            await store.groups(only_open=False),
            await store.groups(source="orders"),
            await store.groups(only_open=False, largest_first=True),
            await store.groups(statuses=_ASKED, only_open=False, named="f-1"),
            await store.audit(limit=10_000),
            await store.campaigns(),
            await store.replays(self.ids),
        )

    def _keep(self, letters: list[DeadLetter]) -> None:
        kept = self._both(lambda store: store.keep(letters))
        self.ids += [one.id for one in kept if one.id not in self.ids]
        self.told += [letter for letter in letters if letter.message.lineage is None]

    def _chosen(self, some: list[int]) -> tuple[str, ...]:
        return tuple(self.ids[n % len(self.ids)] for n in some)

    def _both(self, call: Call) -> Any:
        """Return the answer of both, which is None when both refuse with the same words."""
        ours, refusal = self._answer(call, self.store)
        theirs, expected = self._answer(call, self.model)
        assert ours == theirs, f"the model says {theirs!r}"
        assert refusal == expected, f"the model says {expected!r}"
        self.refused = refusal is not None
        return ours

    def _answer(self, call: Call, store: LetterStore) -> tuple[Any, str | None]:
        try:
            return self._run(call(store)), None
        except DeadLetterError as error:
            return None, f"{type(error).__name__}: {error}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


async def _all_letters(store: LetterStore) -> list[DeadLetter]:
    page = await store.find(limit=3)
    ids = [head.id for head in page.heads]
    while page.after is not None:
        page = await store.find(limit=3, after=page.after)
        ids += [head.id for head in page.heads]
    return list(await store.get(ids))
