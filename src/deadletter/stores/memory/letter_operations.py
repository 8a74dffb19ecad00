"""The operations of office transactions on the letters of a shelf."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import structs

from deadletter.core.audit import ItemSum, SealedLetter, Sums
from deadletter.core.brake import BrakeWindow, Release
from deadletter.core.deaths import DAY, floor, renamed, uncounted
from deadletter.core.grouping import GroupRule, grown
from deadletter.core.letter import (
    OPEN,
    AuditEntry,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    Standing,
    State,
)
from deadletter.core.letter_filing import Known, story_seal
from deadletter.core.saved_search import SavedSearch
from deadletter.core.seals import Ends, Sealing, Start
from deadletter.office.transactions.operations import (
    Brief,
    Counts,
    FiledCounts,
    OfficeNumbers,
    Revision,
    SealedLetters,
    Seals,
    Shifts,
)

from .campaigns import Campaigns
from .letter_table import LetterTable, StoredLetter


class MemoryOperations(Campaigns):
    """A shelf and its campaigns; letters and items are counted when somebody asks."""

    def __init__(self, shelf: LetterTable, windows: dict[str, BrakeWindow]) -> None:
        super().__init__(shelf)
        self._windows = windows
        self._searches: dict[str, SavedSearch] = {}

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""
        return self._shelf.sealing

    async def find_known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Return the letters with these ids, each with the cap of its last campaign."""
        return {
            kept.head.id: structs.replace(kept.known, cap=self.cap_of(kept))
            for kept in self._shelf.given(ids)
        }

    async def insert_letters(self, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
        """Put new letters away."""
        for known, letter in letters:
            self._shelf.insert(known, letter)

    async def rewrite_letters(self, letters: Sequence[Known]) -> None:
        """Write the heads and stories of letters that died again."""
        for known in letters:
            kept = self._shelf.by_seq[known.seq]
            kept.known = structs.replace(known, cap=None)  # looked up anew each time
            kept.story_seal = story_seal(kept.known, self.sealing)

    async def count_filed(self, counts: FiledCounts) -> list[str]:
        """Count what was filed; return the names of those groups that are resolved."""
        shelf = self._shelf
        shelf.tally["kept"] += len(counts.new)
        shelf.note_letters(dict.fromkeys(counts.new, 1))
        for died in counts.groups:
            name = died.fingerprint
            shelf.groups[name] = grown(shelf.groups.get(name), died)
            shelf.note_deaths({name: died.total})
        for version, at in counts.versions.items():
            shelf.versions[version] = min(at, shelf.versions.get(version, at))
        shelf.deaths.update(counts.deaths)
        names = [died.fingerprint for died in counts.groups]
        resolved = GroupStatus.RESOLVED
        return [name for name in names if shelf.groups[name].standing.status is resolved]

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return dict(self._shelf.rules)

    async def find_new_groups(
        self, groups: Mapping[str, str], day: int
    ) -> tuple[list[str], dict[str, int]]:
        """Return which groups exist, and the number of groups made on a day by overflow group."""
        shelf = self._shelf
        if day > shelf.day:  # a clock that is behind must not begin a new day again
            shelf.day = day
            shelf.kinds.clear()
        return [name for name in groups if name in shelf.groups], dict(shelf.kinds)

    async def add_new_groups(self, made: Mapping[str, int], day: int) -> None:
        """Add to the number of groups made on a day, by overflow group."""
        self._shelf.kinds.update(made)

    async def find_versions(
        self, names: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], datetime]:
        """Return when all versions were first seen."""
        return self._shelf.versions

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
        group = self._shelf.groups[name]
        self._shelf.groups[name] = structs.replace(group, standing=standing)

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

    async def rename_deaths(self, names: Mapping[str, str]) -> None:
        """Count the deaths over time of these groups for others."""
        self._shelf.deaths = renamed(self._shelf.deaths, names)

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""
        self._shelf.rules.pop(name, None)
        if rules:
            self._shelf.rules[name] = tuple(rules)

    async def find_searches(self) -> list[SavedSearch]:
        """Return all saved searches, by name."""
        return [search for _, search in sorted(self._searches.items())]

    async def put_search(self, search: SavedSearch) -> None:
        """Write a search, new or again."""
        self._searches[search.name] = search

    async def delete_search(self, name: str) -> None:
        """Delete a search."""
        del self._searches[name]

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

    async def read_office(self) -> OfficeNumbers:
        """Return the counters and sums of the office."""
        shelf, tally = self._shelf, self._shelf.tally
        seq, hash_ = (shelf.entries[-1].seq, shelf.entries[-1].hash) if shelf.entries else (0, "")
        ends = Ends(seq, hash_, tally["purged"], tally["expired"])
        return OfficeNumbers(tally["kept"], shelf.sums, ends)

    async def read_counts(self) -> Counts:
        """Count all letters; there are no other counts to compare with."""
        heads = [kept.head for kept in self._shelf.by_id.values()]
        found = Counter((head.source, head.fingerprint, head.state.value) for head in heads)
        by_source: Counter[tuple[str, str]] = Counter()
        by_group: Counter[tuple[str, str]] = Counter()
        for (source, name, state), n in found.items():
            by_source[source, state] += n
            by_group[name, state] += n
            by_group[name, "open"] += n if State(state) in OPEN else 0
        return Counts([(*place, n) for place, n in found.items()], by_source, by_group)

    async def find_oddities(self) -> list[str]:
        """Return sentences on deaths that are not counted; a letter is all in one place."""
        counted: Counter[tuple[int, str]] = Counter()
        for (_, at, source, _, _), n in self._shelf.deaths.items():
            counted[floor(at, DAY), source] += n
        heads = [kept.head for kept in self._shelf.by_id.values()]
        needed = Counter((floor(int(h.dead_at.timestamp()), DAY), h.source) for h in heads)
        return uncounted(counted, needed)

    async def read_ids(self) -> AsyncIterator[str]:
        """Return the ids of all letters."""
        for kept in self._shelf.by_id.values():
            yield kept.head.id

    async def read_totals(self) -> dict[str, int]:
        """Return the deaths that each group counts."""
        return {name: group.total for name, group in self._shelf.groups.items()}

    async def read_campaigns(self) -> list[tuple[int, str, Start]]:
        """Return the number, id and start of all campaigns."""
        courses = [(one.seq, one.campaign) for one in self.courses.values()]
        return [(seq, one.id, Start(one.actor, one.reason, one.query)) for seq, one in courses]

    async def read_item_sums(self) -> list[ItemSum]:
        """Return the sums of all campaigns, by outcome; they are not counted."""
        return [
            ItemSum(course.seq, outcome, total, course.marks.key_id, None)
            for course in self.courses.values()
            for outcome, total in course.sums.items()
        ]

    async def read_items(self) -> AsyncIterator[tuple[int, int, str]]:
        """Return all letters of campaigns: the numbers of both, and the outcome."""
        for course in self.courses.values():
            for item in course.items:
                yield course.seq, item.seq, item.outcome

    async def read_audit(self, *, target: str | None, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit behind `after`, of one target or all, oldest first."""
        behind = self._shelf.entries[after:]
        return [entry for entry in behind if target in {None, entry.target}][:limit]

    async def find_sealed(self, after: str) -> SealedLetters:
        """Return all letters with their seals."""
        found = self._shelf.by_seq.items()
        return SealedLetters([(seq, kept.sealed(self.generations(seq))) for seq, kept in found])

    async def write_sums(self, sums: Sums) -> None:
        """Write other sums of the office."""
        self._shelf.sums = sums
        self._shelf.marks = self.sealing.marks(sums.key)

    async def write_item_sums(self, sums: Sequence[ItemSum]) -> None:
        """Write other sums of campaigns."""
        self.rekey({one.campaign for one in sums})

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""
        kept = self._shelf.by_seq[seq]
        kept.seal, kept.story_seal, kept.original_seal = seals

    def _kept(self, letters: Iterable[Brief]) -> list[StoredLetter]:
        return [self._shelf.by_seq[brief.seq] for brief in letters]
