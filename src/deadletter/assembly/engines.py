"""URLs become engines."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from deadletter.core.errors import ConfigError
from deadletter.ports import Clock, Dice, Engine
from deadletter.settings import load_settings
from deadletter.system import SystemClock, SystemDice


async def open_engine(
    url: str, *, clock: Clock | None = None, dice: Dice | None = None
) -> Engine:
    """Open what a URL names: `sqlite:///shop.db`, `memory://` …"""
    scheme = urlsplit(url).scheme
    openers = {point.name: point for point in entry_points(group="deadletter.backends")}
    if scheme not in openers:
        known = ", ".join(f"{name}://" for name in sorted(openers))
        raise ConfigError(f"no engine for {url!r}: use one of {known}")
    opener = openers[scheme].load()
    engine: Engine = await opener(
        url, clock=clock or SystemClock(), dice=dice or SystemDice()
    )
    return engine


@asynccontextmanager
async def opened(url: str | None = None) -> AsyncIterator[Engine]:
    """An engine, closed again afterwards; without a URL the configured one."""
    engine = await open_engine(url or default_url())
    try:
        yield engine
    finally:
        await engine.close()


def default_url(environ: Mapping[str, str] = os.environ) -> str:
    """The engine to use when nobody says: DLQ_URL, deadletter.toml, a local file."""
    return load_settings(environ=environ).url
