"""What RabbitMQ promises; what an opened one promises may be less durable."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="rabbitmq",
    durability=Durability.POWER_SAFE,  # quorum queues sync before they confirm
    exact_delay=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
    keeps_letters=False,
    keeps_ledger=False,
)
