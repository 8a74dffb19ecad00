"""Contract of a letter store that knows which workers run."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from deadletter.core.presence import FORGOTTEN, WorkedMailbox, WorkerSign
from deadletter.ports import LetterStore, Presence

from .fakes import START, FakeClock
from .letters_bench import OfficeBench

A: WorkerSign = WorkerSign(
    id="w-1",
    name="a:17",
    host="a",
    version="1.8.1",
    mailboxes=(
        WorkedMailbox(mailbox="orders", slots=200, in_flight=12),
        WorkedMailbox(
            mailbox="m\0ils\ud800", brake="everything fails \x00\ud800", brake_since=START
        ),
    ),
)
B = WorkerSign(id="w-2", name="b:17", host="b")


class PresenceContract(OfficeBench):
    """Workers are there for as long as they say so, and some minutes more."""

    @pytest.fixture
    def present(self, store: LetterStore) -> Presence:
        if not store.features.keeps_presence:
            assert not isinstance(store, Presence)
            pytest.skip("this office does not know which workers run")
        assert isinstance(store, Presence)
        return store

    @pytest.fixture
    def later(self, store: LetterStore, clock: FakeClock) -> Callable[[float], Awaitable[None]]:
        """Let time pass, also for a store with a clock of its own."""

        async def wait(seconds: float) -> None:
            clock.advance(seconds)

        return wait

    async def test_a_worker_is_seen_as_it_last_was(
        self, present: Presence, later: Callable[[float], Awaitable[None]]
    ) -> None:
        await present.note_workers([B, A])
        await later(10.0)
        await present.note_workers([replace(A, version="1.8.2")])

        first, second = await present.workers()
        assert first.sign == replace(A, version="1.8.2")
        assert (first.started_at, first.seen_at) == (START, START + timedelta(seconds=10))
        assert first.silent_for == pytest.approx(0.0)
        assert second.sign == B
        assert second.seen_at == START
        assert second.silent_for == pytest.approx(10.0)

    async def test_silent_workers_are_forgotten(
        self, present: Presence, later: Callable[[float], Awaitable[None]]
    ) -> None:
        await present.note_workers([A, B])
        await later(FORGOTTEN - 1)
        await present.note_workers([B])
        assert [one.sign.id for one in await present.workers()] == ["w-1", "w-2"]

        await later(1.0)
        assert [one.sign.id for one in await present.workers()] == ["w-2"]

        await present.note_workers([B])
        await later(FORGOTTEN)
        assert await present.workers() == []

    async def test_a_forgotten_worker_that_speaks_again_is_new(
        self, present: Presence, later: Callable[[float], Awaitable[None]]
    ) -> None:
        await present.note_workers([A])
        await later(FORGOTTEN + 1)
        await present.note_workers([B])
        await present.note_workers([A])

        assert (await present.workers())[0].started_at == START + timedelta(seconds=FORGOTTEN + 1)

    async def test_workers_that_ended_are_gone(self, present: Presence) -> None:
        await present.note_workers([A, B])
        await present.workers_left(["w-1", "never-there"])

        assert [one.sign.id for one in await present.workers()] == ["w-2"]
