"""Labels that stay few, whatever names messages and mailboxes have."""

from typing import Final

OTHER: Final = "other"
MOST: Final = 200  # values of one label that are told apart


class Capped:
    """The first so many different values as they are, all later ones as `other`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value
