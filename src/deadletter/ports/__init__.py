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
    Timed,
)
from .burial import Burial, Undertaker
from .drain import Drain, Foreign, Outlet
from .engine import Engine, Guards, Lends, LocksFile, Losable, loss_of
from .features import Durability, Features
from .items import ItemStore, Tended
from .ledger import Ledger, LedgerClaim, LedgerKey, LedgerState
from .letters import (
    Indexing,
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
from .signing import PROCESS_KEYS, KeyRing, Seal, Sealed
from .time import Clock, Dice

__all__ = [
    "PROCESS_KEYS",
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
    "Indexing",
    "ItemStore",
    "Kept",
    "KeyRing",
    "Ledger",
    "LedgerClaim",
    "LedgerKey",
    "LedgerState",
    "Lends",
    "LetterStore",
    "LocksFile",
    "Losable",
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
    "Seal",
    "Sealed",
    "Settlement",
    "Sink",
    "Source",
    "Swept",
    "Tended",
    "Timed",
    "Undertaker",
    "loss_of",
]
