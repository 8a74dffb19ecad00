"""What an office promises about the windows of brakes."""

from datetime import timedelta

from msgspec.structs import replace

from deadletter.core.brake import BrakeKind
from deadletter.core.brake_window import BrakeWindow, Release
from deadletter.ports import LetterStore

from .fakes import START, FakeClock
from .letters_bench import ANNA, OfficeBench

_ODD_NAME = "orders\udc80\0é"


def a_window(number: int = 1, *, mailbox: str = "orders") -> BrakeWindow:
    """A window that is open."""
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

    async def test_a_window_is_written_again_until_it_is_closed(
        self, store: LetterStore
    ) -> None:
        window = a_window()
        await store.save_window(window)
        later = window.opened_at + timedelta(hours=1)
        ended = replace(window, seen_at=later, closed_at=later, ending="over", held=9)

        await store.save_window(ended)

        assert list(await store.windows()) == [ended]

    async def test_odd_names_and_ids_are_kept_as_they_are(
        self, store: LetterStore
    ) -> None:
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
        assert [one.release is None for one in await store.windows()] == [
            True,
            True,
            False,
        ]
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
