"""The operations of office transactions on the letters of a shelf."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from deadletter.core.audit import Examination, SealedLetter, Sums
from deadletter.core.brake import BrakeWindow, Release
from deadletter.core.grouping import GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.seals import Sealing
from deadletter.office.transactions.operations import Brief, Revision, Seals, Shifts

from .campaigns import Campaigns
from .letters_shelf import OnShelf, Shelf


class MemoryOperations(Campaigns):
    """A shelf and its campaigns; letters and items are counted when somebody asks."""

    def __init__(self, shelf: Shelf, windows: dict[str, BrakeWindow]) -> None:
        super().__init__(shelf)
        self._windows = windows

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""
        return self._shelf.sealing

    async def find_briefs(self, ids: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order."""
        return [kept.brief() for kept in self._shelf.given(ids)]

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time."""
        oldest_first = reversed(self._shelf.newest_first())
        found = [
            kept.brief()
            for kept in oldest_first
            if kept.head.state is state and kept.head.dead_at < before
        ]
        return found[:limit]

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number."""
        kept = self._shelf.by_id.get(id)
        return None if kept is None else (kept.seq, kept.whole())

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters."""
        for kept in self._kept(letters):
            kept.change(state=state)

    async def replace_message(self, revision: Revision) -> None:
        """Write another message into a letter; keep the message that died aside."""
        kept = self._shelf.by_seq[revision.seq]
        kept.known = structs.replace(kept.known, head=revision.head, edited=revision.digest)
        if kept.letter.original is None:
            kept.original_seal = kept.seal
        kept.letter = structs.replace(
            kept.letter, message=revision.message, original=kept.letter.as_it_died
        )
        kept.seal = revision.seal

    async def delete_letters(self, letters: Sequence[Brief]) -> None:
        """Delete letters with their contents."""
        for brief in letters:
            del self._shelf.by_id[brief.id], self._shelf.by_seq[brief.seq]

    async def count_deleted(self, letters: Sequence[Brief], action: str) -> None:
        """Count deleted letters for the office."""
        self._shelf.note_letters({brief.id: -1 for brief in letters})
        self._shelf.tally[f"{action}d"] += len(letters)

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change nothing: letters are counted when somebody asks."""

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Seal entries and write them at the end of the audit."""
        self._shelf.audit(entries)

    async def find_standings(self, names: Sequence[str]) -> dict[str, Standing]:
        """Return the standings of groups that exist."""
        groups = self._shelf.groups
        return {name: groups[name].standing for name in names if name in groups}

    async def set_standing(self, name: str, standing: Standing) -> None:
        """Write another standing of a group."""
        self._shelf.stand(name, standing)

    async def find_groups(self, names: Sequence[str], now: datetime) -> dict[str, Group]:
        """Return groups that exist, with their counts."""
        counted = self._shelf.counted_groups(now)
        return {group.fingerprint: group for group in counted if group.fingerprint in names}

    async def find_members(self, ids: Sequence[str], name: str) -> list[tuple[int, LetterHead]]:
        """Return the numbers and heads of those letters that are in a group."""
        found = self._shelf.given(ids)
        return [(kept.seq, kept.head) for kept in found if kept.head.fingerprint == name]

    async def move_members(self, letters: Sequence[tuple[int, LetterHead]], name: str) -> None:
        """Write another group into letters."""
        for seq, _ in letters:
            kept = self._shelf.by_seq[seq]
            head = structs.replace(kept.head, fingerprint=name)
            kept.known = structs.replace(kept.known, head=head)

    async def put_group(self, name: str, group: Group) -> None:
        """Write a group, new or again, without its counts by state."""
        self._shelf.groups[name] = structs.replace(group, fingerprint=name)

    async def shrink_group(self, name: str, deaths: int) -> None:
        """Subtract deaths from the total of a group."""
        group = self._shelf.groups[name]
        self._shelf.groups[name] = structs.replace(group, total=max(0, group.total - deaths))

    async def delete_group(self, name: str) -> None:
        """Delete a group."""
        del self._shelf.groups[name]

    async def clear_empty_groups(self, letters: Sequence[Brief]) -> list[str]:
        """Delete texts of groups whose last letters these were; return their names."""
        return self._shelf.blank({brief.fingerprint for brief in letters})

    async def count_deaths(self, deaths: Mapping[str, int]) -> None:
        """Add deaths by group to the sum that `verify` compares with."""
        self._shelf.note_deaths(deaths)

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""
        self._shelf.rules.pop(name, None)
        if rules:
            self._shelf.rules[name] = tuple(rules)

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""
        found = [
            one
            for one in self._windows.values()
            if one.mailbox == mailbox and one.closed_at is None
        ]
        for one in found:
            self._windows[one.id] = structs.replace(one, release=release)
        return len(found)

    async def rekey_sums(self) -> None:
        """Make sums of letters and campaigns anew with the first key, where they fit."""
        shelf = self._shelf
        examination = Examination(shelf.sealing, shelf.sums)
        for id_ in shelf.by_id:
            examination.count_letter(id_)
        self.examine(examination)
        totals = {name: group.total for name, group in shelf.groups.items()}
        outdated = examination.outdated(totals)
        if outdated.letters:
            shelf.sums = Sums(0, 0, 0)
            shelf.note_letters(dict.fromkeys(shelf.by_id, 1))
            shelf.note_deaths(totals)
        fitting = Counter(one.campaign for one in outdated.items)
        self.rekey([seq for seq, n in fitting.items() if n == len(examination.item_sums_of(seq))])

    async def find_sealed(self, after: str) -> tuple[list[tuple[int, SealedLetter]], str | None]:
        """Return all letters with their seals."""
        found = self._shelf.by_seq.items()
        return [(seq, kept.sealed(self.generations(seq))) for seq, kept in found], None

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""
        kept = self._shelf.by_seq[seq]
        kept.seal, kept.story_seal, kept.original_seal = seals

    def _kept(self, letters: Iterable[Brief]) -> list[OnShelf]:
        return [self._shelf.by_seq[brief.seq] for brief in letters]
