"""The intakes of a server: only the places of its settings, none that a request names."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

from deadletter.core.errors import ConfigError, DeadLetterError, NotFound
from deadletter.core.events import Observer
from deadletter.core.intakes import IntakeStatus
from deadletter.ports import Clock, Dice, KeyRing, LetterStore
from deadletter.settings import Settings

from .place_intake import PlaceIntake

_MOST: Final = 100


class Intakes:
    """All intakes of one server, by name."""

    def __init__(
        self,
        settings: Settings,
        *,
        letters: LetterStore,
        ring: KeyRing,
        clock: Clock,
        dice: Dice,
        observe: Observer,
    ) -> None:
        self._by_name: dict[str, PlaceIntake] = {}
        self._followed = [one.name for one in settings.intake if one.follow]
        urls = settings.source_urls
        if len(settings.intake) > _MOST:
            raise ConfigError(f"intake has {len(settings.intake)} sections; {_MOST} is the most")
        for place in settings.intake:
            if place.server not in urls:
                known = ", ".join(sorted(urls)) or "none"
                raise ConfigError(
                    f"intake {place.name!r} names the server {place.server!r}, which is not in"
                    f" [sources]; the settings have {known}"
                )
            if place.name in self._by_name:
                raise ConfigError(f"two sections [[intake]] have the name {place.name!r}")
            self._by_name[place.name] = PlaceIntake(
                place,
                urls[place.server],
                letters=letters,
                ring=ring,
                clock=clock,
                dice=dice,
                observe=observe,
            )

    async def __aenter__(self) -> Self:
        for name in self._followed:
            with suppress(DeadLetterError):
                await self._by_name[name].follow(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._by_name:
            await asyncio.gather(*(one.close() for one in self._by_name.values()))

    def list(self) -> Sequence[IntakeStatus]:
        """Return how all of them do, in the order of the settings."""
        return [one.status() for one in self._by_name.values()]

    def get(self, name: str) -> PlaceIntake:
        """Return one intake. Raises NotFound if no section of the settings has its name."""
        found = self._by_name.get(name)
        if found is None:
            raise NotFound(f"there is no intake {name[:80]!r}; [[intake]] in the settings has them")
        return found
