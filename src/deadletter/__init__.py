"""
The dead letter office for message consumers.

    from deadletter import App, Exponential

    app = App("sqlite:///shop.db")

    @app.handler("orders", max_attempts=5, backoff=Exponential(1.0))
    async def charge(order: Order) -> None: ...
"""

from importlib import import_module
from typing import Any

# Loaded on first use, so that `dlq --help` does not import the runtime. Type checkers
# read __init__.pyi.
_HOMES = {
    ".app": ("App",),
    ".client": ("Client",),
    ".core.backoff": ("Exponential", "Fixed", "Linear", "NoBackoff"),
    ".core.brake": ("BrakePolicy",),
    ".core.campaign": ("Care",),
    ".core.failure.classify": ("ErrorClassifier", "Rule", "rules_from_toml"),
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
    ".core.failure": ("ErrorCategory", "Failure", "Trouble"),
    ".core.letter": ("By", "DeadLetter", "State"),
    ".core.message": ("Delivery", "Message"),
    ".core.policy": ("DLQPolicy", "Disposition", "ErrorBudgetPolicy", "LimitMode", "Route"),
    ".office.office": ("Office",),
    ".office.replays": ("ReplayRequest",),
    ".profiles": ("PROFILES", "Profile"),
    ".runtime.handlers": ("Context",),
    ".runtime.registration": ("RegisteredHandler",),
    ".wiring.engines": ("open_engine", "opened"),
    ".loading": ("load_app",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 -- all of them strings
    *sorted(_HOME_OF)
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
