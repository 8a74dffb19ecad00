"""What an office promises, whoever keeps it."""

from .letters_filing import KeepingContract, OverflowContract, WindowsContract
from .letters_finding import FindingContract, ListingContract
from .letters_grouping import GroupingContract, RegroupingContract, WaitingContract
from .letters_key_order import KeyOrderContract
from .letters_replaying import ReplayingContract
from .letters_returning import RetellingContract, ReturningContract
from .letters_reviewing import EditingContract, ReviewingContract


class LetterStoreContract(
    KeepingContract,
    FindingContract,
    GroupingContract,
    RegroupingContract,
    OverflowContract,
    ListingContract,
    ReviewingContract,
    EditingContract,
    ReplayingContract,
    KeyOrderContract,
    ReturningContract,
    RetellingContract,
    WaitingContract,
    WindowsContract,
):
    """All of it. A backend's whole test is a subclass with a fixture `store`."""
