"""
The only place that knows both ends of a port: URLs become engines, handlers
become running loops.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .engines import open_engine, opened

if TYPE_CHECKING:
    from .app import App
    from .loading import load_app
    from .rules import read_rules

__all__ = ["App", "load_app", "open_engine", "opened", "read_rules"]

# Loaded when they are first asked for: commands that only look need no runtime.
_HOMES: Final = {"App": ".app", "load_app": ".loading", "read_rules": ".rules"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
