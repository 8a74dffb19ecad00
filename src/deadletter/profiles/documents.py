"""Fields that documents have besides our own, for others who read the collections."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.letter import DeadLetter, LetterHead, State


class KeyFields(Struct, frozen=True, kw_only=True):
    """The names of fields of an idempotency key."""

    key: str
    state: str
    attempts: str
    first_seen_at: str
    changed_at: str
    expires_at: str


class DocumentFields(ABC):
    """More fields of the documents of letters and idempotency keys."""

    name: ClassVar[str]
    keys: ClassVar[KeyFields]

    @abstractmethod
    def letter(self, letter: DeadLetter) -> dict[str, Any]:
        """Return the fields of a new letter."""

    @abstractmethod
    def death(self, head: LetterHead, story: Sequence[Attempt]) -> dict[str, Any]:
        """Return the fields that change when a letter dies again."""

    @abstractmethod
    def state(self, state: State) -> dict[str, Any]:
        """Return the fields that change with the state of a letter."""
