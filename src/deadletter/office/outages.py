"""Windows in which brakes were open, as people see and end them."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from deadletter.core.brake_window import BrakeWindow, WindowState, merged
from deadletter.core.errors import NotFound
from deadletter.core.letter import By
from deadletter.ports import Clock, LetterStore

LATEST: Final = 1_000  # windows that are looked at


class Outage(Struct, frozen=True, kw_only=True):
    """One time that a mailbox was held back, by however many workers."""

    state: WindowState
    window: BrakeWindow


class Released(Struct, frozen=True, kw_only=True):
    """A mailbox whose workers were told to go on."""

    mailbox: str
    windows: int


async def list_outages(
    store: LetterStore,
    clock: Clock,
    *,
    mailbox: str | None = None,
    only: Collection[str] = (),
    only_open: bool = False,
    limit: int = 50,
) -> list[Outage]:
    """List the latest times that mailboxes were held back, the latest first."""
    now = clock.now()
    found = await store.windows(mailbox=mailbox, limit=LATEST)
    shown = merged(one for one in found if not only or one.mailbox in only)
    outages = [Outage(state=one.state(now), window=one) for one in shown]
    if only_open:
        outages = [one for one in outages if one.state is WindowState.OPEN]
    return outages[:limit]


async def release_mailbox(store: LetterStore, mailbox: str, by: By) -> Released:
    """Tell a mailbox's workers to go on: messages are judged by their policy."""
    count = await store.release_windows(mailbox, by)
    if not count:
        raise not_held(mailbox)
    return Released(mailbox=mailbox, windows=count)


def not_held(mailbox: str) -> NotFound:
    """Say that nothing holds a mailbox back."""
    return NotFound(
        f"the brake of mailbox {mailbox!r} is not open; `dlq outages` shows those that"
        " are"
    )
