"""Letters on a shelf: what is kept, counted and audited, as plain objects."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, structs

from deadletter.core.audit import SealedLetter, SealedMessage, Sums, act, seal
from deadletter.core.deaths import Key
from deadletter.core.grouping import Asked, GroupRule, StatusCount, as_of, mentions
from deadletter.core.letter import AuditEntry, By, DeadLetter, Group, GroupStatus, LetterHead, State
from deadletter.core.letter_filing import Known, message_seal, story_seal
from deadletter.core.packing import pack_rest
from deadletter.core.seals import MASK, Sealing
from deadletter.office.transactions.operations import Brief


class StoredLetter(Struct, kw_only=True):
    """A letter that is there: as it came, and what is known of it now."""

    seq: int
    letter: DeadLetter
    known: Known
    seal: bytes  # of its message
    story_seal: bytes
    original_seal: bytes | None = None

    @property
    def head(self) -> LetterHead:
        """Its head as it is now."""
        return self.known.head

    def brief(self) -> Brief:
        """The part of it that transactions decide on."""
        head = self.head
        return Brief(self.seq, head.id, head.source, head.fingerprint, head.state, head.replays)

    def whole(self) -> DeadLetter:
        """All of it as it is now."""
        known = self.known
        return structs.replace(
            self.letter, head=known.head, history=known.history, frame=known.frame
        )

    def change(self, **changes: object) -> None:
        """Change something about its head, which is then another revision."""
        head = structs.replace(self.head, revision=self.head.revision + 1, **changes)
        self.known = structs.replace(self.known, head=head)

    def sealed(self, generations: Iterable[int]) -> SealedLetter:
        """All of it with its seals; `generations` are of the replays it was part of."""
        letter, known = self.letter, self.known
        died = letter.original
        return SealedLetter(
            head=known.head,
            message=SealedMessage(known.current, pack_rest(letter), letter.message.body, self.seal),
            original=None
            if died is None
            else SealedMessage(
                known.digest,
                pack_rest(structs.replace(letter, message=died)),
                died.body,
                self.original_seal,
            ),
            frame=known.frame,
            history=known.history,
            generation=known.generation,
            spent=known.spent,
            seal=self.story_seal,
            generations=tuple(generations),
        )


class LetterTable:
    """All letters of an office, and its audit."""

    def __init__(self) -> None:
        self.sealing = Sealing()  # given its keys once the office is open
        self.marks = self.sealing.marks()  # that the sums are made of
        self.sums = Sums(0, 0, 0)
        self.by_id: dict[str, StoredLetter] = {}
        self.by_seq: dict[int, StoredLetter] = {}
        self.last_seq = 0  # also of letters that are gone
        self.groups: dict[str, Group] = {}
        self.rules: dict[str, tuple[GroupRule, ...]] = {}
        self.versions: dict[tuple[str, str], datetime] = {}  # first seen
        self.kinds: Counter[str] = Counter()  # groups made on the day
        self.deaths: Counter[Key] = Counter()  # over time
        self.day = 0
        self.entries: list[AuditEntry] = []
        self.tally: Counter[str] = Counter()  # kept, purged, expired

    def given(self, ids: Iterable[str]) -> list[StoredLetter]:
        """The letters of these ids, each once, in this order."""
        return [self.by_id[id_] for id_ in dict.fromkeys(ids) if id_ in self.by_id]

    def newest_first(self) -> list[StoredLetter]:
        """All letters in the order of every list."""
        return sorted(
            self.by_id.values(), key=lambda kept: (kept.head.dead_at, kept.seq), reverse=True
        )

    def insert(self, known: Known, letter: DeadLetter) -> None:
        """Put a new letter away."""
        original = None
        if letter.original is not None:
            rest = pack_rest(structs.replace(letter, message=letter.original))
            original = self.sealing.message(known.head, known.digest, rest)
        self.last_seq = seq = self.last_seq + 1
        self.by_id[known.head.id] = self.by_seq[seq] = StoredLetter(
            seq=seq,
            letter=letter,
            known=structs.replace(known, seq=seq),
            seal=message_seal(known, letter, pack_rest(letter), self.sealing),
            story_seal=story_seal(known, self.sealing),
            original_seal=original,
        )

    def note_letters(self, letters: Mapping[str, int]) -> None:
        """Add letters to the sum of those that are there, or take some off."""
        self._choose_marks()
        total = self.sums.letter_marks + self.marks.texts(letters)
        self.sums = structs.replace(self.sums, letter_marks=total & MASK)

    def note_deaths(self, deaths: Mapping[str, int]) -> None:
        """Note how many deaths more or less groups count, which `verify` goes by."""
        self._choose_marks()
        total = self.sums.death_marks + self.marks.texts(deaths)
        self.sums = structs.replace(
            self.sums, deaths=self.sums.deaths + sum(deaths.values()), death_marks=total & MASK
        )

    def _choose_marks(self) -> None:
        if not (self.sums.deaths or self.sums.letter_marks):
            self.marks = self.sealing.marks()
            self.sums = structs.replace(self.sums, key=self.marks.key_id)

    def record(self, action: str, target: str, by: By, *, at: datetime, detail: str = "") -> None:
        """Write an act at the end of the audit."""
        self.audit([act(action, target, by, at=at, detail=detail)])

    def audit(self, acts: Iterable[AuditEntry]) -> None:
        """Write acts at the end of the audit."""
        last = self.entries[-1] if self.entries else None
        self.entries += seal(
            acts,
            seq=last.seq if last else 0,
            previous=last.hash if last else "",
            sealing=self.sealing,
        )

    def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""
        found: dict[str, dict[State, int]] = {}
        for kept in self.by_id.values():
            states = found.setdefault(kept.head.source, {})
            states[kept.head.state] = states.get(kept.head.state, 0) + 1
        return found

    def listed(self, asked: Asked) -> list[Group]:
        """Groups, latest or largest first."""
        start = asked.start
        found = [
            group
            for group in self.counted_groups(asked.now)
            if asked.source in {None, group.source}
            and (group.open or not asked.only_open)
            and (asked.statuses is None or group.standing.status in asked.statuses)
            and group.fingerprint.startswith(asked.named)
            and mentions(group, asked.pattern)
            and (start is None or asked.place(group) < start)
        ]
        return sorted(found, key=asked.place, reverse=True)[: asked.limit]

    def count_groups(self, sources: Sequence[str], now: datetime) -> dict[GroupStatus, StatusCount]:
        """The number of groups by status, and of those with open letters."""
        groups: Counter[GroupStatus] = Counter()
        opened: Counter[GroupStatus] = Counter()
        for group in self.counted_groups(now):
            if not sources or group.source in sources:
                groups[group.standing.status] += 1
                opened[group.standing.status] += group.open > 0
        return {status: StatusCount(n, opened[status]) for status, n in groups.items()}

    def blank(self, names: set[str]) -> list[str]:
        """Delete what groups without letters say of them; which ones these were."""
        left = {kept.head.fingerprint for kept in self.by_id.values()}
        gone = []
        for name in sorted(names - left):
            group = self.groups[name]
            if group.text or group.frame or group.code:
                self.groups[name] = structs.replace(group, text="", frame="", code="")
                gone.append(name)
        return gone

    def counted_groups(self, now: datetime) -> list[Group]:
        """All groups with their counts."""
        states: dict[str, Counter[State]] = {}
        for kept in self.by_id.values():
            states.setdefault(kept.head.fingerprint, Counter())[kept.head.state] += 1
        return [
            structs.replace(
                group, counts=dict(states.get(fingerprint, {})), standing=as_of(group.standing, now)
            )
            for fingerprint, group in self.groups.items()
        ]
