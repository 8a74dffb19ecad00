"""Settings become a place: the engine is opened, and everything made of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from deadletter.assembly.foreign import Ways
from deadletter.assembly.serving import footing
from deadletter.core.events import Observer
from deadletter.observe.fan import fan_out
from deadletter.observe.metrics import Metrics
from deadletter.office.letters import Letters
from deadletter.office.preflight import Fits
from deadletter.office.replay import Replay
from deadletter.ports import Clock, Dice, KeyRing
from deadletter.settings import Settings

from .place import Place
from .search_shares import SearchShares


@asynccontextmanager
async def opened_place(
    settings: Settings,
    *,
    url: str | None = None,
    office: str | None = None,
    clock: Clock,
    dice: Dice,
    observe: Observer,
    fits: Fits | None = None,
) -> AsyncIterator[Place]:
    """
    What requests use, over the engine of the settings; closed again afterwards.

    Plans check bodies with `fits`, where the handlers are known.
    """
    async with footing(
        settings, url=url, office=office, clock=clock, dice=dice
    ) as ground:
        engine, letters = ground.engine, ground.letters
        registry = CollectorRegistry()
        yield Place(
            engine=engine,
            store=letters,
            letters=Letters(letters, clock),
            replay=Replay(
                letters,
                engine.broker,
                clock,
                dice,
                engine.ledger,
                postman=engine.postman,
                ring=KeyRing(letters, settings.signing_keys),
                ways=Ways(settings.source_urls, clock=clock, home=url or settings.url),
                presume_after=settings.presume_after,
                fits=fits,
            ),
            items=ground.items,
            access=ground.access,
            clock=clock,
            dice=dice,
            settings=settings,
            searches=SearchShares(clock, share=settings.serve.search_share),
            observe=fan_out(observe, Metrics(registry)),
            metrics=registry,
        )
