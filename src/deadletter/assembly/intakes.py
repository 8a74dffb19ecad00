"""The loops that take in the dead letters of others while an App works."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from msgspec import Struct

from deadletter.core.dialects import NOBODY, Trusted
from deadletter.core.errors import NotFound
from deadletter.core.events import Observer
from deadletter.ports import Clock, Dice, Drain, Foreign, LetterStore
from deadletter.runtime.intake import Intake

from .engines import key_ring
from .foreign import Ways, opened_foreign


class Dead(Struct, frozen=True):
    """A server of others, and its dead places; those that can be told without."""

    server: str
    places: tuple[str, ...] = ()
    trusted: Trusted = NOBODY


async def dead_places(
    foreign: Foreign, named: Sequence[str], *, may_be_none: bool = False
) -> list[Drain]:
    """
    The ways into the places that were named, or that can be told from others.

    Raises NotFound if there are none: who goes on draining would drain nothing.
    """
    places = named or await foreign.places()
    if not places and not may_be_none:
        raise NotFound(
            "no dead queue can be told from others there: name it, as in "
            "`dlq drain SERVER orders-dlq`"
        )
    return [foreign.drain(place) for place in dict.fromkeys(places)]


async def intakes(
    stack: AsyncExitStack,
    dead: Sequence[Dead],
    letters: LetterStore,
    *,
    clock: Clock,
    dice: Dice,
    observe: Observer,
    ways: Ways,
) -> list[Intake]:
    """A loop for every dead place; their servers are let go of with the stack."""
    loops: list[Intake] = []
    for one in dead:
        name = ways.named(one.server)
        foreign = await stack.enter_async_context(
            opened_foreign(ways.url(name), clock=clock)
        )
        loops += [
            Intake(
                drain=drain,
                letters=letters,
                clock=clock,
                dice=dice,
                observe=observe,
                ring=key_ring(letters),
                trusted=one.trusted,
                server=name,
            )
            for drain in await dead_places(foreign, one.places)
        ]
    return loops
