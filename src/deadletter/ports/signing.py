"""Keys for what an engine writes beside a message, where others could write it too."""

import os
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from deadletter.core.signing import Keys, keys_of

from .letters import LetterStore

PROCESS_KEYS: Final = Keys(os.urandom(32))
"""The keys of whoever was given none: good within this process, and nowhere else."""


class KeyRing:
    """The keys that an office signs with: those that were set, or else its own."""

    def __init__(self, letters: LetterStore, texts: Sequence[str] = ()) -> None:
        self._letters = letters
        self._keys = keys_of(texts)

    async def keys(self) -> Keys:
        """Return the keys; the office is asked once."""
        if self._keys is None:
            self._keys = Keys(await self._letters.signing_key(os.urandom(32)))
        return self._keys


class Seal:
    """The keys of an engine, which are handed to it once its office is open."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys = PROCESS_KEYS


@runtime_checkable
class Sealed(Protocol):
    """A broker that writes attempts into messages, and signs them."""

    seal: Seal
