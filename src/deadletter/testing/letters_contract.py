"""What an office promises, whoever keeps it."""

from .letters_editing import EditingContract
from .letters_finding import FindingContract
from .letters_grouping import GroupingContract
from .letters_keeping import KeepingContract
from .letters_key_order import KeyOrderContract
from .letters_listing import ListingContract
from .letters_overflowing import OverflowContract
from .letters_regrouping import RegroupingContract
from .letters_replaying import ReplayingContract
from .letters_retelling import RetellingContract
from .letters_returning import ReturningContract
from .letters_reviewing import ReviewingContract
from .letters_waiting import WaitingContract
from .letters_windows import WindowsContract


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
