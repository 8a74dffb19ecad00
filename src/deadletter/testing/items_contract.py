"""What an engine's lease queues promise, whoever keeps them."""

from .items_dying import DyingContract
from .items_keeping import KeepingContract
from .items_lending import LendingContract
from .items_placing import PlacingContract
from .items_queues import QueuesContract
from .items_remembering import RememberingContract


class ItemsContract(
    LendingContract,
    PlacingContract,
    DyingContract,
    KeepingContract,
    QueuesContract,
    RememberingContract,
):
    """All of it. A backend's whole test is a subclass with a fixture `engine`."""
