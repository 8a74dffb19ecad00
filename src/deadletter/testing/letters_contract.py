"""What an office promises, whoever keeps it."""

from .letters_editing import EditingContract
from .letters_finding import FindingContract
from .letters_grouping import GroupingContract
from .letters_keeping import KeepingContract
from .letters_listing import ListingContract
from .letters_replaying import ReplayingContract
from .letters_retelling import RetellingContract
from .letters_returning import ReturningContract
from .letters_reviewing import ReviewingContract


class LetterStoreContract(
    KeepingContract,
    FindingContract,
    GroupingContract,
    ListingContract,
    ReviewingContract,
    EditingContract,
    ReplayingContract,
    ReturningContract,
    RetellingContract,
):
    """All of it. A backend's whole test is a subclass with a fixture `store`."""
