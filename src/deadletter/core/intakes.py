"""Intakes by settings: dead queues of other systems that a server can take letters from."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from .letter import LetterHead


class IntakeState(StrEnum):
    """The states of an intake."""

    IDLE = "idle"
    LOOKING = "looking"
    TAKING = "taking"
    FOLLOWING = "following"


class IntakeStatus(Struct, frozen=True, kw_only=True):
    """
    An intake as one server knows it; its numbers begin with the start of that server.

    `waiting` is how many messages were in the place at `looked_at`. `trouble` is why it does
    not get on, in a sentence.
    """

    name: str
    server: str  # its name in the settings
    address: str  # of the server, without passwords
    place: str
    state: IntakeState
    since: datetime | None = None  # of this state
    waiting: int | None = None
    looked_at: datetime | None = None
    taken: int = 0  # letters, new or not
    new: int = 0
    refused: int = 0  # by the office: their messages stay in the place
    last_taken_at: datetime | None = None
    dialect: str = ""  # of the last letter
    trouble: str = ""
    trouble_since: datetime | None = None
    target: int | None = None  # letters to take; None: all, or not taking


class Sighting(Struct, frozen=True, kw_only=True):
    """A message in a dead queue, as the letter that it would become."""

    head: LetterHead
    dialect: str
