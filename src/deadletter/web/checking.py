"""Would it serve? What `dlq serve --check` looks at, without answering anybody."""

import socket
from pathlib import Path

from deadletter.core.errors import ConfigError
from deadletter.core.events import Observer
from deadletter.observe.telling import teller_of
from deadletter.office.doctor import Check, Health, check_durability
from deadletter.ports import Clock, Dice
from deadletter.settings import Serve, Settings

from .auth.binding import is_local
from .listening import check_binding
from .opening import opened_place
from .place import Place


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
    engine lives: one that is not there yet is not made by looking.
    """
    check_binding(settings.serve)
    listening = _listening(settings.serve)
    if _is_yet_to_be_made(file):
        text = f"there is no office at {file} yet: the first start makes one."
        return [listening, Check("engine", Health.OK, text)]
    async with opened_place(
        settings, url=url, office=office, clock=clock, dice=dice, observe=observe
    ) as place:
        await place.store.counts()  # the engine answers, or says why not
        durability = check_durability(place.engine)
        access, alerts = await _access(place), _alerts(settings)
        return [listening, durability, _lending(place), access, alerts]


def _is_yet_to_be_made(file: Path | None) -> bool:
    return file is not None and not file.exists()


def _listening(settings: Serve) -> Check:
    host, port = settings.host, settings.port
    whom = "this machine only" if is_local(host) else "whoever can reach it"
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return Check("listening", Health.OK, f"{host}:{port}, for {whom}.")
    text = f"something answers on {host}:{port} already: this server, or another one."
    return Check("listening", Health.WARN, text)


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
        return Check(
            "alerts", Health.OK, "nobody is told: there are no alerts.targets."
        )
    for number, target in enumerate(targets):
        try:
            teller_of(target)
        except ConfigError as error:
            return Check("alerts", Health.FAIL, f"alerts.targets[{number}]: {error}")
    kinds = ", ".join(target.kind for target in targets)
    return Check("alerts", Health.OK, f"people are told by {kinds}.")
