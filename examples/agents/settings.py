"""What the service is told by its environment."""

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
    """Each of these is set by AGENTS_ and its name in capitals."""

    url: str = "redis://localhost:6379/0"
    office: str = "sqlite:///agents.db"
    facts: str = "facts.json"
    tools: str = ""  # a module with further TOOLS
    max_deliveries: int = 5
    backoff_step: float = 60.0  # seconds, times the number of the delivery
    backoff_cap: float = 900.0
    visibility: float = 300.0  # seconds a request is ours without a sign of life
    wait: float = 20.0  # seconds of long polling
    lookups_per_second: float = 20.0
    health_port: int = 8080
    metrics_port: int = 9464

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """What is set; a ValueError that names the variable when it cannot be."""
        given: dict[str, Any] = {}
        for setting in fields(cls):
            name = PREFIX + setting.name.upper()
            if (text := environ.get(name)) is None:
                continue
            kind: Any = type(setting.default)
            try:
                given[setting.name] = kind(text)
            except ValueError:
                raise ValueError(f"{name}={text!r} is not a {kind.__name__}") from None
        return cls(**given)

    def all_tools(self) -> tuple[Tool, ...]:
        further = import_module(self.tools).TOOLS if self.tools else ()
        return (*TOOLS, *further)

    @property
    def library(self) -> Path:
        return Path(self.facts)
