"""Settings of the service, from its environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from .tools import TOOLS, Tool

PREFIX: Final = "AGENTS_"


@dataclass(slots=True, frozen=True)
class Settings:
    """The settings; the variable of each is AGENTS_ and its name in capitals."""

    url: str = "redis://localhost:6379/0"
    office: str = "sqlite:///agents.db"
    facts: str = "facts.json"
    tools: str = ""  # a module with more TOOLS
    max_deliveries: int = 5
    backoff_step: float = 60.0  # seconds, times the delivery count
    backoff_cap: float = 900.0
    visibility: float = 300.0  # seconds a request is leased without a sign of life
    wait: float = 20.0  # seconds of long polling
    lookups_per_second: float = 20.0
    retention_interval: float = 3600.0  # seconds between two runs of retention
    health_port: int = 8080
    metrics_port: int = 9464

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the settings. Raises ValueError, with the variable, for an invalid value."""
        given: dict[str, Any] = {}
        for setting in fields(cls):
            name = PREFIX + setting.name.upper()
            if (text := environ.get(name)) is None:
                continue
            kind: Any = type(setting.default)
            try:
                given[setting.name] = kind(text)
            except ValueError:
                article = "an" if kind is int else "a"
                raise ValueError(
                    f"{name} must be {article} {kind.__name__}, got {text!r}"
                ) from None
        return cls(**given)

    def all_tools(self) -> tuple[Tool, ...]:
        """Return the tools of the agent, with those of the module in `tools`."""
        further = import_module(self.tools).TOOLS if self.tools else ()
        return (*TOOLS, *further)

    @property
    def library(self) -> Path:
        """Return the file of facts."""
        return Path(self.facts)
