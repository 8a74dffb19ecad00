"""What an office promises, whoever keeps it."""

from .letters_finding import FindingContract
from .letters_keeping import KeepingContract
from .letters_replaying import ReplayingContract
from .letters_reviewing import ReviewingContract


class LetterStoreContract(
    KeepingContract, FindingContract, ReviewingContract, ReplayingContract
):
    """All of it. A backend's whole test is a subclass with a fixture `store`."""
