"""What an engine's lease queues promise, whoever keeps them."""

from contracts.items_clocks import ItemClocksContract
from contracts.items_dying import DyingContract
from contracts.items_keeping import KeepingContract
from contracts.items_lending import LendingContract
from contracts.items_limits import LimitsContract
from contracts.items_placing import PlacingContract
from contracts.items_queues import QueuesContract
from contracts.items_sources import SourcesContract


class ItemsContract(
    LendingContract,
    PlacingContract,
    DyingContract,
    KeepingContract,
    QueuesContract,
    SourcesContract,
    LimitsContract,
    ItemClocksContract,
):
    """All of it. A backend's whole test is a subclass with a fixture `engine`."""
