"""Clock, dice and observer, which travel together through the runtime."""

from typing import NamedTuple

from deadletter.core.events import Observer
from deadletter.ports import Clock, Dice


class RuntimeContext(NamedTuple):
    """What every part of a loop needs of the world around it."""

    clock: Clock
    dice: Dice
    observe: Observer
