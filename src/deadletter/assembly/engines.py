"""URLs become engines."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from urllib.parse import urlsplit

from deadletter.core.errors import ConfigError, NotFound
from deadletter.core.redact import redact
from deadletter.core.signing import keys_of
from deadletter.core.urls import sqlite_file, unreadable
from deadletter.ports import (
    Broker,
    Clock,
    Dice,
    Engine,
    Examining,
    KeyRing,
    LetterStore,
    Reconciles,
    Sealed,
)
from deadletter.settings import OFFICE, OfficeDurability, Settings, load_settings
from deadletter.system import SystemClock, SystemDice

from .durability import check_office
from .pairing import Paired

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Opener: TypeAlias = Callable[..., Awaitable[Engine]]

_SCHEMES: Final = {
    "memory": ("memory",),
    "sqlite": ("sqlite",),
    "postgresql": ("postgresql", "postgres"),
    "redis": (
        "redis",
        "rediss",
        "redis+unix",
        "valkey",
        "valkeys",
        "valkey+unix",
    ),
    "bullmq": ("bullmq", "bullmqs", "bullmq+unix"),
    "sqs": ("sqs", "sqs+http", "sqs+https"),
    "kafka": ("kafka",),
    "rabbitmq": ("amqp", "amqps"),
    "nats": ("nats", "tls"),
    "mongodb": ("mongodb", "mongodb+srv"),
}
OWN: Final = {scheme: home for home, schemes in _SCHEMES.items() for scheme in schemes}
"""Our own backends by the scheme of their URLs; others have an entry point."""

_MEANT: Final = {
    **{name: (schemes[0],) for name, schemes in _SCHEMES.items()},
    "sqlite3": ("sqlite",),
    "file": ("sqlite",),
    "psql": ("postgresql",),
    "pg": ("postgresql",),
    "mongo": ("mongodb",),
    "rabbit": ("amqp",),
    "jetstream": ("nats",),
}
"""Schemes that people often write by mistake, and the schemes that they mean."""


async def open_engine(
    url: str,
    *,
    office: str | None = None,
    office_durability: OfficeDurability | None = None,
    clock: Clock | None = None,
    dice: Dice | None = None,
    make: bool = True,
) -> Engine:
    """
    Open what a URL names: `sqlite:///shop.db`, `redis://localhost`, `memory://` …

    Letters go to the engine itself, or to `office` when another one is named. An
    engine that cannot keep letters needs one, here or in the settings. An office that
    is not power-safe is refused, unless `office_durability` accepts less; without it
    the settings decide. With `make=False` a file that is missing is not made.
    """
    clock, dice = clock or SystemClock(), dice or SystemDice()
    if not make:
        check_file(office or url)
    engine = await _open(url, clock, dice)
    try:
        if engine.letters is None or office not in (None, url):
            place = office or _named_office(engine)
            if not make:
                check_file(place)
            broker = engine.broker
            engine = await _paired(engine, await _open(place, clock, dice))
            if isinstance(broker, Sealed) and engine.letters is not None:
                broker.seal.keys = await key_ring(engine.letters).keys()
        for part in (engine.letters, engine.broker):
            _seal(part)
        if engine.letters is not None:
            engine.letters.group_limit.per_day = default_settings().groups_per_day
        check_office(
            engine,
            lambda: office_durability or default_settings().office_durability,
        )
    except BaseException:
        await engine.close()
        raise
    return engine


def file_of(url: str) -> Path | None:
    """Return the file that a URL names, if it names one."""
    return Path(sqlite_file(url)) if _scheme(url) == "sqlite" else None


def check_url(url: str) -> None:
    """Raise ConfigError for a URL that names no engine, or no file where it should."""
    scheme = _scheme(url)
    if scheme not in OWN:
        _others(url)
    try:
        urlsplit(url)
    except ValueError as error:
        raise unreadable(scheme) from error
    file_of(url)


def check_file(url: str) -> None:
    """Raise NotFound if a URL names a file that is not there."""
    file = file_of(url)
    if file is not None and not file.exists():
        raise NotFound(
            f"there is no office at {file} yet: `dlq work` and `dlq send` make "
            "one, --url or DLQ_URL says where another is"
        )


def _named_office(engine: Engine) -> str:
    office = default_settings().office
    if office is None:
        raise ConfigError(
            f"{engine.features.engine} keeps no letters, and no office is named that "
            f'does: name one with office="{OFFICE}" in App, --office {OFFICE}, '
            "DLQ_OFFICE, or `office` in deadletter.toml"
        )
    return office


async def _paired(engine: Engine, office: Engine) -> Engine:
    try:
        return Paired(engine, office)
    except BaseException:
        await office.close()
        raise


def _seal(part: LetterStore | Broker | None) -> None:
    """Have letters, audit and sums sealed with the keys that the settings name."""
    if not isinstance(part, Examining | Reconciles):
        return
    keys = default_settings().signing_keys
    keys_of(keys)  # refuses keys that are too short
    part.sealing.use([key.encode("utf-8", "surrogatepass") for key in keys])


def key_ring(letters: LetterStore) -> KeyRing:
    """The keys of an office: those in the settings, or else its own."""
    return KeyRing(letters, default_settings().signing_keys)


async def _open(url: str, clock: Clock, dice: Dice) -> Engine:
    check_url(url)
    return await _opener(url)(url, clock=clock, dice=dice)


def _scheme(url: str) -> str:
    """Return the scheme of a URL, also when the rest is malformed."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""


def _opener(url: str) -> Opener:
    scheme = _scheme(url)
    if scheme in OWN:
        backend = import_module(f"deadletter.backends.{OWN[scheme]}")
        return cast("Opener", backend.open_engine)
    return cast("Opener", _others(url).load())


def _others(url: str) -> "EntryPoint":
    """Return the entry point of somebody else's backend; ConfigError if none is."""
    # Loaded late: it reads everything that is installed.
    from importlib.metadata import entry_points  # noqa: PLC0415

    scheme = _scheme(url)
    others = {point.name: point for point in entry_points(group="deadletter.backends")}
    if scheme in others:
        return others[scheme]
    known = sorted({*OWN, *others})
    raise ConfigError(f"{redact(url)!a} names no engine: {_instead(url, known)}")


def _instead(url: str, known: Sequence[str]) -> str:
    """Return what to write instead of a URL with an unknown scheme."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("/"):
        file = url if url.endswith((".db", ".sqlite", ".sqlite3")) else "shop.db"
        return f"it begins with a scheme, as in sqlite:///{file}"
    if scheme in {"http", "https"}:
        return "to ask a server, use --server or DLQ_SERVER"
    meant = _MEANT.get(scheme.partition("+")[0]) or get_close_matches(scheme, known, 1)
    if meant:
        return f"did you mean {meant[0]}://?"
    return f"use one of {', '.join(f'{name}://' for name in known)}"


@asynccontextmanager
async def opened(
    url: str | None = None,
    *,
    office: str | None = None,
    office_durability: OfficeDurability | None = None,
    make: bool = True,
) -> AsyncIterator[Engine]:
    """An engine, closed again afterwards; without a URL the configured one."""
    settings = default_settings()
    engine = await open_engine(
        url or settings.url,
        office=office or (None if url else settings.office),
        office_durability=office_durability,
        make=make,
    )
    try:
        yield engine
    finally:
        await engine.close()


def default_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """What counts when nobody says: DLQ_URL …, deadletter.toml, a local file."""
    return load_settings(environ=environ)
