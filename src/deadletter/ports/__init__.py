"""
What we need of the world.

Ports are batch-first: every verb takes many and answers for each, and a driver
turns a batch into one round trip. Dead letters, retries and back-off are decided
above, once, for all drivers.
"""

from .access import AccessStore
from .broker import (
    Acked,
    Broker,
    Counting,
    Fate,
    Overruled,
    QueueInfo,
    QueueOptions,
    Reconnecting,
    Released,
    Settlement,
    Sink,
    Source,
    Swept,
)
from .burial import Burial, Undertaker
from .drain import Drain, Foreign, Outlet
from .engine import Engine, Guards, Lends
from .features import Durability, Features
from .items import ItemStore, Tended
from .ledger import Ledger, LedgerClaim, LedgerKey, LedgerState
from .letters import (
    Kept,
    LetterStore,
    Move,
    Names,
    Naming,
    Page,
    ReplayItems,
    ReplaySettled,
    ReplayTaken,
)
from .postman import Posted, Postman
from .time import Clock, Dice

__all__ = [
    "AccessStore",
    "Acked",
    "Broker",
    "Burial",
    "Clock",
    "Counting",
    "Dice",
    "Drain",
    "Durability",
    "Engine",
    "Fate",
    "Features",
    "Foreign",
    "Guards",
    "ItemStore",
    "Kept",
    "Ledger",
    "LedgerClaim",
    "LedgerKey",
    "LedgerState",
    "Lends",
    "LetterStore",
    "Move",
    "Names",
    "Naming",
    "Outlet",
    "Overruled",
    "Page",
    "Posted",
    "Postman",
    "QueueInfo",
    "QueueOptions",
    "Reconnecting",
    "Released",
    "ReplayItems",
    "ReplaySettled",
    "ReplayTaken",
    "Settlement",
    "Sink",
    "Source",
    "Swept",
    "Tended",
    "Undertaker",
]
