"""
The dead letter office for message consumers.

    from deadletter import App, DLQPolicy, Exponential

    app = App("sqlite:///shop.db")

    @app.handler("orders", policy=DLQPolicy(max_attempts=5))
    async def charge(order: Order) -> None: ...
"""

from .assembly import App, load_app, open_engine, opened
from .core.backoff import Exponential, Fixed, Linear, NoBackoff
from .core.brake import BrakePolicy
from .core.classify import ErrorClassifier, rules_from_toml
from .core.errors import (
    BackendError,
    ConfigError,
    Conflict,
    DeadLetterError,
    GiveUp,
    Ignore,
    LogicalFailure,
    Malformed,
    NotFound,
    QueryError,
    RetryLater,
    Unavailable,
)
from .core.failure import ErrorCategory, Failure, Trouble
from .core.letter import DeadLetter, State
from .core.message import Delivery, Message
from .core.policy import Disposition, DLQPolicy, ErrorBudgetPolicy, LimitMode, Route
from .core.profiles import PROFILES, Profile
from .core.rule import Rule
from .runtime.context import Context

__all__ = [
    "PROFILES",
    "App",
    "BackendError",
    "BrakePolicy",
    "ConfigError",
    "Conflict",
    "Context",
    "DLQPolicy",
    "DeadLetter",
    "DeadLetterError",
    "Delivery",
    "Disposition",
    "ErrorBudgetPolicy",
    "ErrorCategory",
    "ErrorClassifier",
    "Exponential",
    "Failure",
    "Fixed",
    "GiveUp",
    "Ignore",
    "LimitMode",
    "Linear",
    "LogicalFailure",
    "Malformed",
    "Message",
    "NoBackoff",
    "NotFound",
    "Profile",
    "QueryError",
    "RetryLater",
    "Route",
    "Rule",
    "State",
    "Trouble",
    "Unavailable",
    "load_app",
    "open_engine",
    "opened",
    "rules_from_toml",
]
