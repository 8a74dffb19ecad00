"""What Kafka promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="kafka",
    durability=Durability.REPLICATED,  # where topics have more than one copy
    ordered=False,  # within a partition only
    keeps_letters=False,
    keeps_ledger=False,
)
