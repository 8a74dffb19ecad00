"""
What we need of the world.

Ports are batch-first: every verb takes many and answers for each, and a driver
turns a batch into one round trip. Dead letters, retries and back-off are decided
above, once, for all drivers.
"""

from .broker import (
    Acked,
    Broker,
    Fate,
    QueueInfo,
    QueueOptions,
    Released,
    Settlement,
    Sink,
    Source,
    Swept,
)
from .burial import Burial, Undertaker
from .engine import Engine
from .features import Durability, Features
from .ledger import Ledger, LedgerClaim, LedgerKey, LedgerState
from .letters import (
    Kept,
    LetterStore,
    Move,
    Names,
    Naming,
    Page,
    ReplaySettled,
    ReplayTaken,
)
from .time import Clock, Dice

__all__ = [
    "Acked",
    "Broker",
    "Burial",
    "Clock",
    "Dice",
    "Durability",
    "Engine",
    "Fate",
    "Features",
    "Kept",
    "Ledger",
    "LedgerClaim",
    "LedgerKey",
    "LedgerState",
    "LetterStore",
    "Move",
    "Names",
    "Naming",
    "Page",
    "QueueInfo",
    "QueueOptions",
    "Released",
    "ReplaySettled",
    "ReplayTaken",
    "Settlement",
    "Sink",
    "Source",
    "Swept",
    "Undertaker",
]
