"""Servers over offices in some state, with all their pages found; made once per process."""

from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
import pytest

from browser.crawling import Crawl, crawl
from browser.offices import HOSTILE_WORDS, busy, fill, letters_of
from browser.places import Place
from browser.processes import Serve


@dataclass
class Office:
    """A server over an office in some state, and its pages."""

    server: Serve
    place: Place
    found: Crawl


class Offices:
    """The offices of this process, made when the first test asks."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._made: dict[str, Office] = {}
        self._places: list[Place] = []

    async def get(self, state: str) -> Office:
        """Return the office in this state; tests only read in it."""
        if state not in self._made:
            folder = self._factory.mktemp(state)
            place = Place(folder, f"sqlite:///{folder}/shop.db")
            self._places.append(place)
            self._made[state] = await prepare(place, state)
        return self._made[state]

    def end(self) -> None:
        """End all servers."""
        for place in self._places:
            place.end()


async def prepare(place: Place, state: str) -> Office:
    """Fill the office of a place, serve it, and find its pages."""
    await fill(place.url, letters_of(state, datetime.now(UTC)))
    server = place.serve()
    if state in {"many", "hostile"}:
        async with place.api() as api:
            await busy(api, words=HOSTILE_WORDS if state == "hostile" else ())
    async with httpx.AsyncClient(base_url=server.url) as client:
        return Office(server, place, await crawl(client, server.first_token))
