"""
The dead letter office for message consumers.

    from deadletter import App, DLQPolicy, Exponential

    app = App("sqlite:///shop.db")

    @app.handler("orders", policy=DLQPolicy(max_attempts=5))
    async def charge(order: Order) -> None: ...
"""

from importlib import import_module
from typing import Any

# Loaded when they are first asked for: `dlq --help` should not wait for the
# runtime. What type checkers see is in __init__.pyi.
_HOMES = {
    ".assembly": (
        "App",
        "load_app",
        "open_engine",
        "opened",
    ),
    ".core.backoff": (
        "Exponential",
        "Fixed",
        "Linear",
        "NoBackoff",
    ),
    ".core.brake": ("BrakePolicy",),
    ".core.classify": (
        "ErrorClassifier",
        "rules_from_toml",
    ),
    ".core.errors": (
        "BackendError",
        "ConfigError",
        "Conflict",
        "DeadLetterError",
        "GiveUp",
        "Ignore",
        "LogicalFailure",
        "Malformed",
        "NotFound",
        "QueryError",
        "RetryLater",
        "Unavailable",
    ),
    ".core.failure": (
        "ErrorCategory",
        "Failure",
        "Trouble",
    ),
    ".core.letter": (
        "DeadLetter",
        "State",
    ),
    ".core.message": (
        "Delivery",
        "Message",
    ),
    ".core.policy": (
        "DLQPolicy",
        "Disposition",
        "ErrorBudgetPolicy",
        "LimitMode",
        "Route",
    ),
    ".core.profiles": (
        "PROFILES",
        "Profile",
    ),
    ".core.rule": ("Rule",),
    ".runtime.context": ("Context",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 -- all of them strings
    *sorted(_HOME_OF),
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
