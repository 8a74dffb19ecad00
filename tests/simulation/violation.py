"""A promise that was broken, and how that is told."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from deadletter.core.letter import DeadLetter
from simulation.evidence import Evidence
from simulation.workload import Parcel


class Violation(Struct, frozen=True):
    """A promise that was broken."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


Check: TypeAlias = Callable[[Evidence], Iterator[Violation]]


def with_parcels(evidence: Evidence) -> Iterator[tuple[DeadLetter, Parcel]]:
    """Letters, each with the parcel it was sent as."""
    for letter in evidence.letters:
        parcel = evidence.effects.parcels.get(letter.message.id)
        if parcel is not None:
            yield letter, parcel


def told(letter: DeadLetter) -> str:
    """What became of a letter, in a few words."""
    head = letter.head
    return (
        f"{head.message_id} is a {head.state} letter: {head.reason} "
        f"({head.reason_text}), {head.attempts} attempts"
    )
