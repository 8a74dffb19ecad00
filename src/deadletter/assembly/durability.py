"""The rule for offices: power-safe, unless somebody accepts less."""

from collections.abc import Callable
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.ports import Durability, Engine
from deadletter.settings import OfficeDurability

_ORDER: Final = list(Durability)  # from the least to the most
_LOSSES: Final = {
    Durability.NONE: "the end of the process loses all letters",
    Durability.KILL_SAFE: "a power cut may lose the latest letters",
}


def check_office(engine: Engine, accepted: Callable[[], OfficeDurability]) -> None:
    """
    Raise ConfigError if letters are kept less safely than `accepted` says.

    Mailboxes and office in memory may be used together: they are lost together.
    """
    assert engine.letters is not None  # none is opened without
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
