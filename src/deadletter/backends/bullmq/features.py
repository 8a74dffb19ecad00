"""What BullMQ's queues promise; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="bullmq",
    durability=Durability.POWER_SAFE,  # with appendfsync always
    due_order=False,  # what was delayed lines up when it is due, behind all others
    tallies=False,  # producers and workers of BullMQ count nothing
    keeps_results=True,
    keeps_letters=False,
    keeps_ledger=False,
)
