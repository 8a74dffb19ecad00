"""Replaying through somebody else's server: the way back for letters found there."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from deadletter.assembly.foreign import WayBack, opened_foreign
from deadletter.core.errors import ConfigError
from deadletter.office.batches import whole_letters
from deadletter.office.preflight import REPLAYABLE, target_of

from .desk import Desk
from .local import LocalOffice
from .office import Office


@asynccontextmanager
async def way_back(
    office: Office, url: str | None, desk: Desk
) -> AsyncIterator[Office]:
    """The office, with its replays going through the server that `url` names."""
    if url is None:
        yield office
        return
    if not isinstance(office, LocalOffice):
        raise ConfigError("--through works where the engine is, not through --server")
    async with opened_foreign(url, clock=desk.clock) as foreign:
        outlet = WayBack(foreign, url)
        yield LocalOffice(office.engine, desk.clock, desk.dice, outlet)


async def check_way_back(office: Office, ids: Sequence[str], to: str | None) -> None:
    """Refuse letters that cannot go back that way, before any is sent."""
    if not isinstance(office, LocalOffice) or office.outlet is None:
        return
    async for letters in whole_letters(office.store, ids):
        for letter in letters:
            if letter.head.state in REPLAYABLE:  # the others are not sent anyway
                office.outlet.check(letter.message, target_of(letter.head, to))
