"""What MongoDB promises; an opened one may be less durable. It has no mailboxes."""

from typing import Final

from deadletter.ports.features import Durability, Features

FEATURES: Final = Features(
    engine="mongodb",
    durability=Durability.REPLICATED,  # where the set has more than one member
    ordered=False,  # this and what follows is about mailboxes: there are none
    exact_delay=False,
    counts_attempts=False,
    keeps_history=False,
    fences=False,
    finds_suspects=False,
    sees_lost=False,
    sees_delayed=False,
    due_order=False,
    dooms=False,
    tallies=False,
    keeps_options=False,
)
