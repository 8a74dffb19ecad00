"""What Redis promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="redis",
    durability=Durability.POWER_SAFE,  # with appendfsync always
    keeps_letters=False,
)
