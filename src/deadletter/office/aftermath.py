"""The letters of a replay that failed again, by cause: the same error as before, or another."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Campaign, Outcome, ReplayItem
from deadletter.core.failure.fingerprint import normalise
from deadletter.core.letter import DeadLetter, LetterHead
from deadletter.ports import LetterStore

from .batches import whole_letters

LOOKED_AT: Final = 100
"""Failed letters that are looked at, the first in sending order."""

_SAMPLES: Final = 3
_FAILED: Final = frozenset({Outcome.FAILED})


class Cause(Struct, frozen=True, kw_only=True):
    """
    Letters that failed again with one error, and one group of them.

    `is_same` tells whether they had failed with this error before the replay.
    """

    fingerprint: str
    source: str
    error_type: str
    text: str
    letters: int
    is_same: bool
    samples: tuple[str, ...] = ()  # ids of letters
    stack: str = ""  # of the first of them


class Aftermath(Struct, frozen=True, kw_only=True):
    """The failed letters of a replay by cause, the most frequent first."""

    failed: int
    looked_at: int
    causes: tuple[Cause, ...] = ()

    @property
    def same(self) -> int:
        """Return how many of those looked at failed with the same error."""
        return sum(one.letters for one in self.causes if one.is_same)

    @property
    def other(self) -> int:
        """Return how many of those looked at failed with another error."""
        return sum(one.letters for one in self.causes if not one.is_same)


async def load_aftermath(
    store: LetterStore, campaign: Campaign, *, sources: Sequence[str] = ()
) -> Aftermath:
    """Return why letters of a replay failed again; with `sources` only letters of these."""
    failed = campaign.counts.get(Outcome.FAILED, 0)
    if not failed:
        return Aftermath(failed=0, looked_at=0)
    page = await store.campaign_items(campaign.id, limit=LOOKED_AT, outcomes=_FAILED)
    items = {one.letter_id: one for one in page.items}
    letters: list[DeadLetter] = []
    async for some in whole_letters(store, list(items)):
        letters += (one for one in some if not sources or one.head.source in sources)
    return aftermath_of(failed, letters, items)


def aftermath_of(
    failed: int, letters: Sequence[DeadLetter], items: dict[str, ReplayItem]
) -> Aftermath:
    """Return the causes of these letters, whose items in the replay are given by id."""
    found: dict[tuple[str, bool], list[DeadLetter]] = {}
    for letter in letters:
        is_same = has_same_error(letter.story(), items[letter.id].generation)
        found.setdefault((letter.head.fingerprint, is_same), []).append(letter)
    causes = [_cause(some, is_same=is_same) for (_, is_same), some in found.items()]
    causes.sort(key=lambda one: (-one.letters, one.is_same, one.fingerprint))
    return Aftermath(failed=failed, looked_at=len(letters), causes=tuple(causes))


def has_same_error(story: Sequence[Attempt], generation: int) -> bool:
    """Return whether a copy failed with the error that its letter had before it was sent."""
    now = next((one for one in reversed(story) if one.generation >= generation), None)
    before = next((one for one in reversed(story) if one.generation < generation), None)
    return now is not None and before is not None and _error(now) == _error(before)


def _error(attempt: Attempt) -> tuple[str, str, str]:
    return attempt.error_type, attempt.code, normalise(attempt.text, attempt.error_type)


def _cause(letters: Sequence[DeadLetter], *, is_same: bool) -> Cause:
    head: LetterHead = letters[0].head
    story = letters[0].story()
    return Cause(
        fingerprint=head.fingerprint,
        source=head.source,
        error_type=head.error_type,
        text=head.error_text,
        letters=len(letters),
        is_same=is_same,
        samples=tuple(one.id for one in letters[:_SAMPLES]),
        stack=story[-1].stack if story else "",
    )
