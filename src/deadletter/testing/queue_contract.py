"""What an engine's mailboxes promise, whoever keeps them."""

from .queue_delivering import DeliveringContract
from .queue_settling import LosingContract, SettlingContract


class QueueContract(DeliveringContract, SettlingContract, LosingContract):
    """All of it. A backend's whole test is a subclass with a fixture `engine`."""
