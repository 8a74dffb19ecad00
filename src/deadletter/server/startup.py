"""Startup: open the engine of the settings, build the server context, check both."""

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
from deadletter.core.redact import redact
from deadletter.observe.metrics import Metrics
from deadletter.observe.notifications import notifier_for
from deadletter.observe.observers import fan_out
from deadletter.office.doctor import Check, Health, check_durability, check_locks
from deadletter.office.office import Office
from deadletter.office.preflight import Fits
from deadletter.ports import Clock, Dice, KeyRing
from deadletter.server.auth.codes import SignInCodes
from deadletter.server.auth.hosts import is_local
from deadletter.server.auth.oidc import open_provider
from deadletter.settings import Serve, Settings
from deadletter.wiring.engines import file_of
from deadletter.wiring.foreign import Ways
from deadletter.wiring.intakes import Intakes
from deadletter.wiring.node_drains import NodeDrains
from deadletter.wiring.serving import serving_engine

from .context import SearchShares, ServerContext
from .listener import check_binding, listen


@asynccontextmanager
async def open_context(
    settings: Settings,
    *,
    url: str | None = None,
    office: str | None = None,
    clock: Clock,
    dice: Dice,
    observe: Observer,
    fits: Fits | None = None,
) -> AsyncIterator[ServerContext]:
    """
    Open the engine of the settings, yield the server context, and close the engine.

    If `fits` is given, replay plans check bodies with it.
    """
    async with serving_engine(settings, url=url, office=office, clock=clock, dice=dice) as ground:
        engine, letters = ground.engine, ground.letters
        registry = CollectorRegistry()
        home, ring = url or settings.url, KeyRing(letters, settings.signing_keys)
        seen = fan_out(observe, Metrics(registry))
        yield ServerContext(
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
                alerts=settings.alerts,
                approve_above=settings.serve.approve_above,
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
            intakes=Intakes(
                settings, letters=letters, ring=ring, clock=clock, dice=dice, observe=seen
            ),
            observe=seen,
            metrics=registry,
            codes=SignInCodes(clock),
            home=redact(home),
            oidc=open_provider(settings.serve, clock),
            file=file_of(office or (None if url else settings.office) or home),
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
    Check everything that a server needs.

    Raises the errors that prevent a start. `file` is the file of the office: if it does
    not exist, the checks use a temporary file instead of creating it.
    """
    check_binding(settings.serve)
    found = [_listening(settings.serve)]
    with ExitStack() as stack:
        if missing := _missing(file):
            temporary = Path(stack.enter_context(TemporaryDirectory())) / "office.db"
            url, office = _with_file(settings, url, office, temporary)
            found.append(_to_be_created(missing))
        async with open_context(
            settings, url=url, office=office, clock=clock, dice=dice, observe=observe
        ) as context:
            await context.store.counts()  # raises if the engine does not answer
            found += [check_durability(context.engine), *check_locks(context.engine)]
            found.append(_lending(context))
            return [*found, await _access(context), _alerts(settings)]


def _missing(file: Path | None) -> Path | None:
    return None if file is None or file.exists() else file


def _to_be_created(file: Path) -> Check:
    if not file.parent.is_dir():
        text = f"the directory of {file} does not exist: create it, or change the path."
        return Check("engine", Health.FAIL, text)
    text = f"there is no office at {file} yet: the first start creates it."
    return Check("engine", Health.OK, text)


def _with_file(
    settings: Settings, url: str | None, office: str | None, file: Path
) -> tuple[str, str | None]:
    """Return the URLs of engine and office, with `file` instead of the missing file."""
    engine = url or settings.url
    office = office or (None if url else settings.office)
    options = urlsplit(office or engine).query
    instead = f"sqlite:///{file}?{options}"
    return (engine, instead) if office else (instead, None)


def _listening(settings: Serve) -> Check:
    host, port = settings.host, settings.port
    whom = "this machine only" if is_local(host) else "all machines that can reach it"
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return _bound(host, port, whom)
    text = f"another process already answers on {host}:{port}; it may be this server."
    return Check("listening", Health.WARN, text)


def _bound(host: str, port: int, whom: str) -> Check:
    try:
        listen(host, port).close()
    except ConfigError as error:
        return Check("listening", Health.FAIL, str(error))
    return Check("listening", Health.OK, f"{host}:{port}, for {whom}.")


def _lending(context: ServerContext) -> Check:
    if context.items is not None:
        return Check("queue server", Health.OK, "this engine stores its items.")
    text = "off: this engine cannot store items; memory, SQLite and PostgreSQL can."
    return Check("queue server", Health.WARN, text)


async def _access(context: ServerContext) -> Check:
    if context.access is None:
        text = "off: everybody on this machine can do everything."
        return Check("access", Health.WARN, text)
    now = context.clock.now()
    count = sum(not token.is_over(now) for token in await context.access.tokens())
    text = f"valid tokens: {count}." if count else "the next start prints a first token."
    return Check("access", Health.OK, text)


def _alerts(settings: Settings) -> Check:
    targets = settings.alerts.targets
    if not targets:
        return Check("alerts", Health.OK, "not sent: the settings have no alerts.targets.")
    for number, target in enumerate(targets):
        try:
            notifier_for(target)
        except ConfigError as error:
            return Check("alerts", Health.FAIL, f"alerts.targets[{number}]: {error}")
    kinds = ", ".join(target.kind for target in targets)
    if any(target.kind is TargetKind.WEBHOOK and not target.secret for target in targets):
        text = f"sent by {kinds}; a webhook without a secret is not signed."
        return Check("alerts", Health.WARN, text)
    return Check("alerts", Health.OK, f"sent by {kinds}.")
