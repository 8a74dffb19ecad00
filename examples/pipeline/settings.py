"""What the environment says."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from deadletter import ConfigError


class Settings(Struct, frozen=True, kw_only=True):
    """Where everything is; the variables have the same names after `PIPELINE_`."""

    graph: Path
    broker: str  # kafka://host:9092/?group=…
    office: str = "sqlite:///pipeline-office.db"  # where dead letters are kept
    documents: Path = Path("documents")  # the repository
    modules: Path = Path("modules.json")  # which module is where
    version: str = ""  # of the service; letters say it
    metrics_port: int | None = None  # None: no metrics
    health_port: int | None = None  # None: no health checks

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """What these variables say; what is missing or cannot be is named."""
        given: dict[str, Any] = {}
        for name in cls.__struct_fields__:
            variable = f"PIPELINE_{name.upper()}"
            value = environ.get(variable)
            if value:
                given[name] = _as(_KINDS.get(name, str), value, variable)
            elif name in _NEEDED:
                raise ConfigError(f"Set {variable}.")
        return cls(**given)


_NEEDED: Final = ("graph", "broker")
_KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "graph": Path,
    "documents": Path,
    "modules": Path,
    "metrics_port": int,
    "health_port": int,
}


def _as(kind: Callable[[str], Any], value: str, variable: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{variable} is {value!r}: use a number.") from None
