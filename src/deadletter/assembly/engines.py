"""URLs become engines."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from deadletter.core.errors import ConfigError
from deadletter.core.redact import redact
from deadletter.ports import Clock, Dice, Engine, KeyRing, LetterStore, Sealed
from deadletter.settings import OFFICE, OfficeDurability, Settings, load_settings
from deadletter.system import SystemClock, SystemDice

from .durability import check_office
from .pairing import Paired


async def open_engine(
    url: str,
    *,
    office: str | None = None,
    office_durability: OfficeDurability | None = None,
    clock: Clock | None = None,
    dice: Dice | None = None,
) -> Engine:
    """
    Open what a URL names: `sqlite:///shop.db`, `redis://localhost`, `memory://` …

    Letters go to the engine itself, or to `office` when another one is named. An
    engine that cannot keep letters has its office in the configured place. An office
    that is not power-safe is refused, unless `office_durability` accepts less; without
    it the settings decide.
    """
    clock, dice = clock or SystemClock(), dice or SystemDice()
    engine = await _open(url, clock, dice)
    try:
        if engine.letters is None or office not in (None, url):
            place = office or default_settings().office or OFFICE
            broker = engine.broker
            engine = await _paired(engine, await _open(place, clock, dice))
            if isinstance(broker, Sealed) and engine.letters is not None:
                broker.seal.keys = await key_ring(engine.letters).keys()
        check_office(
            engine,
            lambda: office_durability or default_settings().office_durability,
        )
    except BaseException:
        await engine.close()
        raise
    return engine


async def _paired(engine: Engine, office: Engine) -> Engine:
    try:
        return Paired(engine, office)
    except BaseException:
        await office.close()
        raise


def key_ring(letters: LetterStore) -> KeyRing:
    """The keys of an office: those in the settings, or else its own."""
    return KeyRing(letters, default_settings().signing_keys)


async def _open(url: str, clock: Clock, dice: Dice) -> Engine:
    scheme = urlsplit(url).scheme
    openers = {point.name: point for point in entry_points(group="deadletter.backends")}
    if scheme not in openers:
        known = ", ".join(f"{name}://" for name in sorted(openers))
        raise ConfigError(f"no engine for {redact(url)!r}: use one of {known}")
    engine: Engine = await openers[scheme].load()(url, clock=clock, dice=dice)
    return engine


@asynccontextmanager
async def opened(
    url: str | None = None,
    *,
    office: str | None = None,
    office_durability: OfficeDurability | None = None,
) -> AsyncIterator[Engine]:
    """An engine, closed again afterwards; without a URL the configured one."""
    settings = default_settings()
    engine = await open_engine(
        url or settings.url,
        office=office or (None if url else settings.office),
        office_durability=office_durability,
    )
    try:
        yield engine
    finally:
        await engine.close()


def default_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """What counts when nobody says: DLQ_URL …, deadletter.toml, a local file."""
    return load_settings(environ=environ)
