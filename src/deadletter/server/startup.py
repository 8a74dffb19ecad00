"""Settings become a place: the engine is opened, and everything made of it."""

import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from deadletter.core.alerts import TargetKind
from deadletter.core.errors import ConfigError
from deadletter.core.events import Observer
from deadletter.observe.metrics import Metrics
from deadletter.observe.notifications import notifier_for
from deadletter.observe.observers import fan_out
from deadletter.office.doctor import Check, Health, check_durability, check_locks
from deadletter.office.office import Office
from deadletter.office.preflight import Fits
from deadletter.ports import Clock, Dice, KeyRing
from deadletter.server.auth.hosts import is_local
from deadletter.settings import Serve, Settings
from deadletter.wiring.foreign import Ways
from deadletter.wiring.node_drains import NodeDrains
from deadletter.wiring.serving import footing

from .context import Place, SearchShares
from .listener import check_binding, listen


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
    async with footing(settings, url=url, office=office, clock=clock, dice=dice) as ground:
        engine, letters = ground.engine, ground.letters
        registry = CollectorRegistry()
        home, ring = url or settings.url, KeyRing(letters, settings.signing_keys)
        seen = fan_out(observe, Metrics(registry))
        yield Place(
            engine=engine,
            store=letters,
            office=Office(
                engine,
                clock,
                dice,
                ring=ring,
                servers=Ways(settings.source_urls, clock=clock, home=home),
                fits=fits,
                presume_after=settings.presume_after,
            ),
            items=ground.items,
            access=ground.access,
            clock=clock,
            dice=dice,
            settings=settings,
            searches=SearchShares(clock, share=settings.serve.search_share),
            nodes=NodeDrains(
                home,
                letters=letters,
                ring=ring,
                graph=settings.serve.graph,
                clock=clock,
                dice=dice,
                observe=seen,
            ),
            observe=seen,
            metrics=registry,
        )


async def check(
    settings: Settings,
    *,
    url: str | None = None,
    office: str | None = None,
    file: Path | None = None,
    clock: Clock,
    dice: Dice,
    observe: Observer,
) -> list[Check]:
    """
    Look at everything that serving needs.

    What could not even start is raised, as it would be then. `file` is where the
    office lives: one that is not there yet is not made by looking, but elsewhere and
    only for as long as that takes.
    """
    check_binding(settings.serve)
    found = [_listening(settings.serve)]
    with ExitStack() as stack:
        if missing := _missing(file):
            there = Path(stack.enter_context(TemporaryDirectory())) / "office.db"
            url, office = _elsewhere(settings, url, office, there)
            found.append(_to_be_made(missing))
        async with opened_place(
            settings, url=url, office=office, clock=clock, dice=dice, observe=observe
        ) as place:
            await place.store.counts()  # the engine answers, or says why not
            found += [check_durability(place.engine), *check_locks(place.engine)]
            found.append(_lending(place))
            return [*found, await _access(place), _alerts(settings)]


def _missing(file: Path | None) -> Path | None:
    return None if file is None or file.exists() else file


def _to_be_made(file: Path) -> Check:
    if not file.parent.is_dir():
        text = f"the directory of {file} does not exist: create it, or change the path."
        return Check("engine", Health.FAIL, text)
    text = f"there is no office at {file} yet: the first start makes one."
    return Check("engine", Health.OK, text)


def _elsewhere(
    settings: Settings, url: str | None, office: str | None, there: Path
) -> tuple[str, str | None]:
    """The URLs of engine and office; the one whose file is missing names `there`."""
    engine = url or settings.url
    office = office or (None if url else settings.office)
    options = urlsplit(office or engine).query
    instead = f"sqlite:///{there}?{options}"
    return (engine, instead) if office else (instead, None)


def _listening(settings: Serve) -> Check:
    host, port = settings.host, settings.port
    whom = "this machine only" if is_local(host) else "whoever can reach it"
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return _bound(host, port, whom)
    text = f"something answers on {host}:{port} already: this server, or another one."
    return Check("listening", Health.WARN, text)


def _bound(host: str, port: int, whom: str) -> Check:
    try:
        listen(host, port).close()
    except ConfigError as error:
        return Check("listening", Health.FAIL, str(error))
    return Check("listening", Health.OK, f"{host}:{port}, for {whom}.")


def _lending(place: Place) -> Check:
    if place.items is not None:
        return Check("queue server", Health.OK, "this engine keeps its items.")
    text = "this engine keeps no items: memory, SQLite and PostgreSQL do."
    return Check("queue server", Health.WARN, text)


async def _access(place: Place) -> Check:
    if place.access is None:
        text = "off: whoever is on this machine may do everything."
        return Check("access", Health.WARN, text)
    now = place.clock.now()
    count = sum(not token.is_over(now) for token in await place.access.tokens())
    text = f"good tokens: {count}." if count else "the next start shows a first token."
    return Check("access", Health.OK, text)


def _alerts(settings: Settings) -> Check:
    targets = settings.alerts.targets
    if not targets:
        return Check("alerts", Health.OK, "nobody is told: there are no alerts.targets.")
    for number, target in enumerate(targets):
        try:
            notifier_for(target)
        except ConfigError as error:
            return Check("alerts", Health.FAIL, f"alerts.targets[{number}]: {error}")
    kinds = ", ".join(target.kind for target in targets)
    if any(target.kind is TargetKind.WEBHOOK and not target.secret for target in targets):
        text = f"people are told by {kinds}; a webhook without a secret is not signed."
        return Check("alerts", Health.WARN, text)
    return Check("alerts", Health.OK, f"people are told by {kinds}.")
