"""Engines by URL: open them, pair them with an office, and check them."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from urllib.parse import urlsplit

from deadletter.core.errors import ConfigError, no_office
from deadletter.core.redact import redact, sqlite_file, unreadable
from deadletter.core.signing import keys_of
from deadletter.ports import (
    AccessStore,
    AtomicBurial,
    AtomicReplay,
    Broker,
    Clock,
    Dice,
    Durability,
    Engine,
    Examining,
    Guards,
    ItemStore,
    JoinsTransactions,
    KeepsItems,
    KeyRing,
    Ledger,
    LetterStore,
    LocksFile,
    Reconciles,
    Sealed,
    TransactionalSending,
    loss_of,
)
from deadletter.settings import OFFICE, OfficeDurability, Settings, load_settings
from deadletter.system import SystemClock, SystemDice

_ORDER: Final = list(Durability)  # from the least to the most
_LOSSES: Final = {
    Durability.NONE: "the end of the process loses all letters",
    Durability.KILL_SAFE: "a power cut may lose the latest letters",
}


def check_office(engine: Engine, accepted: Callable[[], OfficeDurability]) -> None:
    """
    Raise ConfigError if the office is less durable than `accepted` returns.

    An office in memory is allowed with mailboxes in memory: both are lost together.
    """
    assert engine.letters is not None  # every engine is opened with an office
    office, mailboxes = engine.letters.features, engine.features
    if office.durability not in _LOSSES:
        return
    if office.durability is mailboxes.durability is Durability.NONE:
        return
    if _ORDER.index(office.durability) >= _ORDER.index(Durability(accepted())):
        return
    raise ConfigError(
        f"the office in {office.engine} is {office.durability} only:"
        f" {_LOSSES[office.durability]}. An office must be power-safe: use"
        " sqlite:///office.db (without synchronous=normal), PostgreSQL with fsync and"
        " synchronous_commit on, or MongoDB. To accept the loss, set office_durability"
        f' = "{office.durability}" in deadletter.toml, DLQ_OFFICE_DURABILITY='
        f'{office.durability}, or App(office_durability="{office.durability}")'
    )


# Brokers that cannot keep letters (Redis, SQS, Kafka, RabbitMQ, NATS) are paired with an
# office on another engine. All other code sees one engine.


class Paired:
    """
    An engine with the mailboxes of one engine and the office of another.

    Items and tokens are stored in either of the two that can store them; items
    preferably with the messages, tokens preferably with the letters.
    """

    lock_problem: str | None
    items: ItemStore  # only if one of the two has it
    access: AccessStore
    transactions: TransactionalSending  # only if the engine of the mailboxes has it

    def __init__(self, queue: Engine, office: Engine) -> None:
        if office.letters is None:
            raise ConfigError(
                f"{office.features.engine} cannot keep letters: use another office, "
                "such as sqlite:///office.db"
            )
        self.features = queue.features
        self.broker: Broker = queue.broker
        self.letters: LetterStore | None = office.letters
        self.ledger: Ledger | None = queue.ledger or office.ledger
        # Claims and letters are in different engines, so there are no shared transactions.
        self.atomic_burial: AtomicBurial | None = None
        self.atomic_replay: AtomicReplay | None = None
        for engine in (queue, office):
            if isinstance(engine, LocksFile):
                self.lock_problem = engine.lock_problem
        for engine in (office, queue):
            if isinstance(engine, KeepsItems):
                self.items = engine.items
        for engine in (queue, office):
            if isinstance(engine, Guards):
                self.access = engine.access
        if isinstance(queue, JoinsTransactions):
            self.transactions = queue.transactions
        self._engines = (queue, office)

    def lost(self) -> str | None:
        """Return why one of the two engines cannot be used any more, or None."""
        return next(filter(None, map(loss_of, self._engines)), None)

    async def close(self) -> None:
        """Close both engines."""
        for engine in self._engines:
            await engine.close()


if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Opener: TypeAlias = Callable[..., Awaitable[Engine]]

_SCHEMES: Final = {
    "stores.memory": ("memory",),
    "stores.sqlite": ("sqlite",),
    "stores.postgresql": ("postgresql", "postgres"),
    "brokers.redis": ("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix"),
    "brokers.bullmq": ("bullmq", "bullmqs", "bullmq+unix"),
    "brokers.sqs": ("sqs", "sqs+http", "sqs+https"),
    "brokers.kafka": ("kafka",),
    "brokers.rabbitmq": ("amqp", "amqps"),
    "brokers.nats": ("nats", "tls"),
    "stores.mongodb": ("mongodb", "mongodb+srv"),
}
OWN: Final = {scheme: home for home, schemes in _SCHEMES.items() for scheme in schemes}
"""Built-in backends by the scheme of their URLs; other backends have an entry point."""

_TAKE_MAKE: Final = frozenset({*_SCHEMES["stores.postgresql"], *_SCHEMES["stores.mongodb"]})
"""Schemes of servers that may have no office yet; their backends take `make`."""

_MISTAKES: Final = {
    **{name.partition(".")[2]: (schemes[0],) for name, schemes in _SCHEMES.items()},
    "sqlite3": ("sqlite",),
    "file": ("sqlite",),
    "psql": ("postgresql",),
    "pg": ("postgresql",),
    "mongo": ("mongodb",),
    "rabbit": ("amqp",),
    "jetstream": ("nats",),
}
"""Schemes that are often written by mistake, and the correct schemes."""


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
    Open the engine of a URL: `sqlite:///shop.db`, `redis://localhost`, `memory://` …

    Letters are kept in the engine itself, or in `office` if one is named. An engine that
    cannot keep letters needs an office, here or in the settings. Raises ConfigError for
    an office that is not power-safe, unless `office_durability` or the settings accept
    less. With `make=False`, raises NotFound instead of creating a missing office.
    """
    clock, dice = clock or SystemClock(), dice or SystemDice()
    if not make:
        check_file(office or url)
    engine = await _open(url, clock, dice, make=make)
    try:
        if engine.letters is None or office not in (None, url):
            office_url = office or _named_office(engine)
            if not make:
                check_file(office_url)
            broker = engine.broker
            other = await _open(office_url, clock, dice, make=make)
            engine = await _paired(engine, other)
            if isinstance(broker, Sealed) and engine.letters is not None:
                broker.seal.keys = await key_ring(engine.letters).keys()
        for part in (engine.letters, engine.broker):
            _seal(part)
        if engine.letters is not None:
            engine.letters.group_limit.per_day = default_settings().groups_per_day
        check_office(engine, lambda: office_durability or default_settings().office_durability)
    except BaseException:
        await engine.close()
        raise
    return engine


def file_of(url: str) -> Path | None:
    """Return the file that a URL names, if it names one."""
    return Path(sqlite_file(url)) if _scheme(url) == "sqlite" else None


def check_url(url: str) -> None:
    """Raise ConfigError for a URL without a known engine, or with a malformed rest."""
    if not isinstance(url, str):
        raise ConfigError(f"a URL must be text such as 'sqlite:///shop.db', got {url!r}")
    scheme = _scheme(url)
    if scheme not in OWN:
        _entry_point(url)
    try:
        parts = urlsplit(url)
        _ = "," in parts.netloc or parts.port  # several servers have several ports
    except ValueError as error:
        raise unreadable(scheme) from error
    if file_of(url) is None and not url[len(scheme) :].startswith("://"):
        raise ConfigError(f"{redact(url)!a} is incomplete: a URL must begin with {scheme}://")


def check_file(url: str) -> None:
    """Raise NotFound if a URL names a file that does not exist or is empty."""
    file = file_of(url)
    if file is not None and not (file.exists() and file.stat().st_size):
        raise no_office(str(file))


def _named_office(engine: Engine) -> str:
    office = default_settings().office
    if office is None:
        raise ConfigError(
            f"{engine.features.engine} cannot keep letters, and no office is "
            f'named: name one with office="{OFFICE}" in App, --office {OFFICE}, '
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
    """Seal letters, audit and sums with the keys in the settings."""
    if not isinstance(part, Examining | Reconciles):
        return
    keys = default_settings().signing_keys
    keys_of(keys)  # raises for keys that are too short
    part.sealing.use([key.encode("utf-8", "surrogatepass") for key in keys])


def key_ring(letters: LetterStore) -> KeyRing:
    """Return the keys of an office: those in the settings, or else its own."""
    return KeyRing(letters, default_settings().signing_keys)


async def _open(url: str, clock: Clock, dice: Dice, *, make: bool) -> Engine:
    check_url(url)
    given = {} if make or _scheme(url) not in _TAKE_MAKE else {"make": False}
    return await _opener(url)(url, clock=clock, dice=dice, **given)


def _scheme(url: str) -> str:
    """Return the scheme of a URL, also when the rest is malformed."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""


def _opener(url: str) -> Opener:
    scheme = _scheme(url)
    if scheme in OWN:
        backend = import_module(f"deadletter.{OWN[scheme]}")
        return cast("Opener", backend.open_engine)
    return cast("Opener", _entry_point(url).load())


def _entry_point(url: str) -> "EntryPoint":
    """Return the entry point of an installed backend; raise ConfigError if there is none."""
    # Imported late, because it reads the metadata of all installed packages.
    from importlib.metadata import entry_points  # noqa: PLC0415

    scheme = _scheme(url)
    others = {point.name: point for point in entry_points(group="deadletter.backends")}
    if scheme in others:
        return others[scheme]
    known = sorted({*OWN, *others})
    raise ConfigError(f"{redact(url)!a} is not the URL of an engine: {_instead(url, known)}")


def _instead(url: str, known: Sequence[str]) -> str:
    """Return what to write instead of a URL with an unknown scheme."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("/"):
        file = url if url.endswith((".db", ".sqlite", ".sqlite3")) else "shop.db"
        return f"a URL begins with a scheme, as in sqlite:///{file}"
    if scheme in {"http", "https"}:
        return "use --server or DLQ_SERVER to connect to a server"
    meant = _MISTAKES.get(scheme.partition("+")[0]) or get_close_matches(scheme, known, 1)
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
    """Open an engine and close it afterwards; without a URL the configured one."""
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
    """Return the default settings: DLQ_URL …, deadletter.toml, a local file."""
    return load_settings(environ=environ)
