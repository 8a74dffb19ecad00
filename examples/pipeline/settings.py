"""Settings of the service, read from environment variables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from deadletter import ConfigError


class Settings(Struct, frozen=True, kw_only=True):
    """Addresses and files; each variable has the name of its field after `PIPELINE_`."""

    graph: Path
    broker: str  # kafka://host:9092/?group=…
    office: str = "sqlite:///pipeline-office.db"  # the store of dead letters
    documents: Path = Path("documents")  # the repository
    modules: str = "modules.json"  # addresses of modules: a file, or the URL of Consul
    consul_token: str = ""  # for Consul, where it checks access
    version: str = ""  # of the service; recorded in letters
    metrics_port: int | None = None  # None: no metrics
    health_port: int | None = None  # None: no health checks

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Self:
        """Return the settings in these variables. Raises `ConfigError` for invalid ones."""
        given: dict[str, Any] = {}
        for name in cls.__struct_fields__:
            variable = f"PIPELINE_{name.upper()}"
            value = environ.get(variable)
            if value:
                given[name] = _converted(_KINDS.get(name, str), value, variable)
            elif name in _NEEDED:
                raise ConfigError(f"{variable} is required, and not set.")
        return cls(**given)


_NEEDED: Final = ("graph", "broker")
_KINDS: Final[Mapping[str, Callable[[str], Any]]] = {
    "graph": Path,
    "documents": Path,
    "metrics_port": int,
    "health_port": int,
}


def _converted(kind: Callable[[str], Any], value: str, variable: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ConfigError(f"{variable} must be a whole number, got {value!r}.") from None
