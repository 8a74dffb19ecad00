"""A person who sends letters back, and tries again when something goes wrong."""

import asyncio
from collections.abc import Sequence

from deadletter.core.campaign import CampaignState, unsent, unsettled
from deadletter.core.errors import BackendError, NotFound
from deadletter.core.letter import By, State
from deadletter.office.replay import Replay
from deadletter.ports import Engine
from simulation.world import Looping, Place

ME = By("operator", "fixed")


class Operator:
    """Waits for a letter, then replays all there are, once."""

    def __init__(self, place: Place) -> None:
        self._replay = Replay(
            place.letters,
            place.broker,
            place.clock,
            place.dice,
            place.ledger,
            atomic_replay=place.atomic_replay,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Try until it is done; somebody who comes later goes on from there."""
        while not stop.is_set():
            try:
                if await self._is_done():
                    await stop.wait()
            except (BackendError, NotFound):
                pass  # whether it happened or not: look again
            await asyncio.sleep(0.5)

    async def _is_done(self) -> bool:
        campaigns = await self._replay.latest()
        if not campaigns:
            await self._replay.start("is:pending", ME)
            return False
        if campaigns[0].state is CampaignState.DONE:
            return True
        await self._replay.run(campaigns[0].id)
        return False


def operator(place: Place) -> Sequence[Looping]:
    """Somebody who waits for one letter and replays it."""
    return [Operator(place)]


async def is_replayed(engine: Engine) -> bool:
    """Whether every copy of a campaign has an outcome; True without any letters."""
    assert engine.letters is not None
    campaigns = await engine.letters.campaigns()
    if not campaigns:
        states = (await engine.letters.counts()).values()
        return not any(counts.get(State.PENDING) for counts in states)
    return not any(unsent(one) or unsettled(one) for one in campaigns)
