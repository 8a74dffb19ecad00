"""The letters of an office: search, read, note, edit, and every verb."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.errors import ConfigError
from deadletter.core.letter import By, Changes, LetterHead, State, sources_of
from deadletter.core.message import Message
from deadletter.core.query.ast import Op, Term
from deadletter.ports import Move

from .batches import batched
from .exports import repro
from .letter_search import LetterSearch
from .letters_protocol import LetterDetails
from .verbs import LetterVerbs, Moved, Verb
from .view import reveal as record_reveal
from .view import tell, view

LONGEST_NOTE: Final = 4_000


class ActStep(Struct, frozen=True):
    """One batch of an act on letters: the ids that it changed, and the result so far."""

    ids: tuple[str, ...]
    so_far: Moved


class Letters(LetterSearch, LetterVerbs):
    """
    The letters of one office.

    Every change is compare-and-set, is recorded in the audit with actor and reason, and returns
    how many letters it did not change for what reason.
    """

    async def details(
        self,
        text: str,
        by: By,
        *,
        reveal: bool = False,
        capture: bool = False,
        sources: Sequence[str] = (),
    ) -> LetterDetails:
        """Return one letter and its story; with `reveal` unmasked, which is recorded."""
        letter = await self.get(text, sources=sources)
        if reveal:
            await record_reveal(self._store, letter, by)
        story = await tell(self._store, letter)
        return LetterDetails(
            view=view(letter, reveal=reveal, capture=capture),
            moments=story.moments,
            left_out=story.left_out,
            message=letter.message if reveal else None,
            original=letter.original if reveal else None,
        )

    async def message(
        self,
        text: str,
        by: By,
        *,
        original: bool = False,
        shown: bool = True,
        sources: Sequence[str] = (),
    ) -> tuple[LetterHead, Message]:
        """Return the complete message of a letter; recorded in the audit if `shown`."""
        letter = await self.get(text, sources=sources)
        if shown:
            await record_reveal(self._store, letter, by)
        return letter.head, letter.as_it_died if original else letter.message

    async def repro(
        self,
        text: str,
        app: str,
        by: By,
        *,
        original: bool = False,
        reveal: bool = False,
        sources: Sequence[str] = (),
    ) -> dict[str, str]:
        """Return the files of a failing test of a letter; recorded in the audit if revealed."""
        head, message = await self.message(
            text, by, original=original, shown=reveal, sources=sources
        )
        # A large body takes long to mask.
        return await asyncio.to_thread(repro, head, message, app, reveal=reveal)

    async def act(
        self, verb: Verb, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """Do one of `VERBS` with letters; see `LetterVerbs`."""
        result = Moved()
        async for step in self.act_in_steps(verb, ids, by, unconfirmed=unconfirmed):
            result = step.so_far
        return result

    async def act_in_steps(
        self, verb: Verb, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> AsyncIterator[ActStep]:
        """
        Do one of `VERBS` with letters, a batch at a time.

        Each batch is a transaction of its own: what a step reports is done for good, even
        if the next one fails or is never asked for.
        """
        verb.check(by, unconfirmed=unconfirmed)
        old = verb.old | {State.REPLAYING} if unconfirmed else verb.old
        result = Moved()
        for batch in batched(ids):
            done, why_not = await self._do(verb, batch, old, by)
            result = _and(result, batch, done, why_not)
            yield ActStep(tuple(done), result)

    async def _do(
        self, verb: Verb, ids: tuple[str, ...], old: frozenset[State], by: By
    ) -> tuple[Sequence[str], Counter[str]]:
        """Return the letters that were changed, and why others were not."""
        if verb.new is not None:
            old &= sources_of(verb.new, self._store.review_order)
            moved = await self._store.move(Move(ids=ids, old=old, new=verb.new), by)
            return moved, _states(await self._heads(set(ids).difference(moved)))
        assert verb.change is not None
        heads = await self._heads(ids)
        fit = [head.id for head in heads if head.state in old]
        changed = await verb.change(self._store, fit, by)
        return changed, _states(head for head in heads if head.state not in old)

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Add a note to letters."""
        result = Moved()
        async for step in self.note_in_steps(ids, text, by):
            result = step.so_far
        return result

    async def note_in_steps(self, ids: Iterable[str], text: str, by: By) -> AsyncIterator[ActStep]:
        """Add a note to letters, a batch at a time; see `act_in_steps`."""
        text = text.strip()
        if not text:
            raise ConfigError("the note is empty: write a text")
        if len(text) > LONGEST_NOTE:
            raise ConfigError(
                f"the note has {len(text):,} characters, at most {LONGEST_NOTE:,} are allowed"
            )
        result = Moved()
        for batch in batched(ids):
            noted = await self._store.note(batch, text, by)
            result = _and(result, batch, noted, Counter())
            yield ActStep(tuple(noted), result)

    async def edit(
        self,
        text: str,
        changes: Changes,
        by: By,
        *,
        revision: int | None = None,
        sources: Sequence[str] = (),
    ) -> LetterHead:
        """
        Change the message of one letter and return its new list entry.

        The letter keeps the message that died as its `original`. With a `revision`,
        raises `Conflict` if somebody has changed the letter since. A replay sends the
        edited message under the original id.
        """
        letter = await self.get(text, sources=sources)
        await self._store.edit(
            letter.id,
            changes.made_to(letter.message),
            revision=letter.head.revision if revision is None else revision,
            by=by,
        )
        return await self.head(letter.id)

    async def _heads(self, ids: Collection[str]) -> Sequence[LetterHead]:
        if not ids:
            return ()
        named = Term("id", Op.IS, tuple(ids))
        return (await self.search(named, limit=len(ids))).heads


def _states(heads: Iterable[LetterHead]) -> Counter[str]:
    return Counter(f"is {head.state}" for head in heads)


def _and(sofar: Moved, asked: Sequence[str], done: Sequence[str], why_not: Counter[str]) -> Moved:
    missing = len(set(asked)) - len(done) - why_not.total()
    if missing > 0:
        why_not["no longer there"] += missing
    return Moved(
        asked=sofar.asked + len(asked),
        moved=sofar.moved + len(done),
        skipped=dict(Counter(sofar.skipped) + why_not),
    )
