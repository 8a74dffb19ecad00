"""Replaying through somebody else's server: the way back for letters found there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import structs

from deadletter.assembly.foreign import WayBack, opened_foreign
from deadletter.office.batches import whole_letters
from deadletter.office.preflight import REPLAYABLE, target_of
from deadletter.office.replay import Replay

from .desk import Desk, Office


@asynccontextmanager
async def way_back(
    office: Office, url: str | None, desk: Desk
) -> AsyncIterator[Office]:
    """The office, with its replays going through the server that `url` names."""
    if url is None:
        yield office
        return
    async with opened_foreign(url, clock=desk.clock) as foreign:
        outlet = WayBack(foreign, url)
        replay = Replay(office.store, outlet, desk.clock, desk.dice)
        yield structs.replace(office, replay=replay, outlet=outlet)


async def check_way_back(office: Office, ids: Sequence[str], to: str | None) -> None:
    """Refuse letters that cannot go back that way, before any is sent."""
    if office.outlet is None:
        return
    async for letters in whole_letters(office.store, ids):
        for letter in letters:
            if letter.head.state in REPLAYABLE:  # the others are not sent anyway
                office.outlet.check(letter.message, target_of(letter.head, to))
