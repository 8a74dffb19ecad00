"""What PostgreSQL promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="postgresql",
    durability=Durability.POWER_SAFE,  # with fsync and synchronous_commit on
    owns_fields=True,
)
