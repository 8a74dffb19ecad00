"""Filing by the rules alone, with as little of a store as they need."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Filed, Filing, Known


def file(
    letters: Iterable[DeadLetter], look_up: Callable[[Sequence[str]], Mapping[str, Known]]
) -> list[Filed]:
    """Return what keeping these letters changes; `look_up` is asked once or twice."""
    filing = Filing(letters)
    known = dict(look_up(filing.ids))
    if rivals := filing.rivals(known):
        known |= look_up(rivals)
    return filing.decide(known)
