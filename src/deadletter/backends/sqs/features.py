"""What SQS promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="sqs",
    durability=Durability.REPLICATED,  # as Amazon says; an emulator keeps nothing
    ordered=False,  # FIFO queues are
    exact_delay=False,
    fences=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_letters=False,
    keeps_ledger=False,
)
