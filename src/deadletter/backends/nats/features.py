"""What JetStream promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="nats",
    durability=Durability.KILL_SAFE,  # replicated where streams are
    fences=False,  # the server takes an ack from whoever had the message
    sees_lost=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    dedupes=True,
    keeps_letters=False,
    keeps_ledger=False,
)
