"""
The audit chain, and the examination of an office's letters and sums.

Each audit entry is sealed together with the seal of the entry before it. A changed, removed,
moved or inserted entry no longer fits its neighbours. A cut end shows by the last seal, which
stores keep apart from the entries.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .ids import body_digest
from .letter import AuditEntry, By, LetterHead
from .packing import key_of
from .seals import (
    EDITED,
    FOUND,
    KEPT,
    MASK,
    NAMED,
    NO_KEY,
    PLAIN,
    Chain,
    Ends,
    Sealing,
    Start,
    Verdict,
    without_key,
)
from .text import many

DIED_AGAIN: Final = By("office", "it died again")
"""The actor and reason recorded when a new death reopens a letter."""


def act(action: str, target: str, by: By, *, at: datetime, detail: str = "") -> AuditEntry:
    """Return an audit entry that is not numbered and sealed yet."""
    return AuditEntry(
        seq=0, at=at, actor=by.actor, action=action, target=target, reason=by.reason, detail=detail
    )


def seal(
    entries: Iterable[AuditEntry], *, seq: int, previous: str, sealing: Sealing = PLAIN
) -> list[AuditEntry]:
    """Number and seal entries that follow entry `seq`, which was sealed with `previous`."""
    sealed: list[AuditEntry] = []
    for number, entry in enumerate(entries, seq + 1):
        numbered = replace(entry, seq=number, previous=previous)
        previous = sealing.entry(previous, numbered)
        sealed.append(replace(numbered, hash=previous))
    return sealed


class Sums(Struct, frozen=True):
    """
    The counters and sums that an office keeps beside its letters.

    Without a key id there are no sums: the office is older than sums, and none were begun
    since.
    """

    deaths: int  # ever counted
    death_marks: int
    letter_marks: int  # of the letters that are there
    key: bytes | None = NO_KEY  # the id of the key these are made with


_NO_SUMS: Final = Sums(0, 0, 0)


class ItemSum(Struct, frozen=True, gc=False):
    """The stored sum of a campaign's letters with one outcome."""

    campaign: int  # its number
    outcome: str
    marks: int
    key: bytes | None = NO_KEY
    letters: int | None = 0  # how many there are; None where an office does not count them


class Outdated(Struct, frozen=True):
    """Correct sums that were not made with the first key."""

    letters: bool
    items: tuple[ItemSum, ...]


class SealedMessage(Struct, frozen=True, gc=False):
    """A letter's message as it is stored."""

    digest: bytes
    rest: bytes
    body: bytes
    seal: bytes | None


class SealedLetter(Struct, frozen=True, kw_only=True, gc=False):
    """A letter as it is stored, with its seals."""

    head: LetterHead
    message: SealedMessage
    original: SealedMessage | None = None
    frame: str
    history: str
    generation: int
    spent: int
    seal: bytes | None  # of its story
    generations: tuple[int, ...] = ()  # of the replays it was taken for


class Examined(Struct, frozen=True, kw_only=True):
    """The findings of an examination, and counts of what could not be checked."""

    findings: tuple[str, ...] = ()
    letters: int = 0
    keyed: bool = False  # seals are checked with a key
    unsealed: int = 0  # letters without seals: only their bodies were checked
    later: int = 0  # letters sealed later than they were filed
    unknown: int = 0  # letters sealed with a key that is not in the list
    entries: int = 0  # of the audit
    entries_unkeyed: int = 0
    entries_unknown: int = 0
    sums_unknown: int = 0  # sums made with a key that is not in the list
    sums_absent: int = 0  # stored without a sum


class Examination:
    """One examination of an office, against the `sums` that it stores."""

    def __init__(self, sealing: Sealing = PLAIN, sums: Sums = _NO_SUMS) -> None:
        self.chain = Chain(sealing)
        self._sealing = sealing
        self._sums = sums
        self._of_letter = sealing.marks(sums.key).text
        self._campaigns: dict[int, str] = {}  # their ids, by number
        self._starts: dict[str, Start] = {}  # of campaigns
        self._item_sums: dict[tuple[int, str], ItemSum] = {}
        self._items: Counter[tuple[int, str]] = Counter()  # by campaign and outcome
        self._item_marks: Counter[tuple[int, str]] = Counter()
        self._findings: list[str] = []
        self._damaged: list[str] = []
        self._unkeyed: list[str] = []  # sums
        self._seen: Counter[str] = Counter()
        self._marks = 0
        self._letters = 0

    def add(self, letter: SealedLetter) -> None:
        """Examine a letter; `count_letter` counts it."""
        try:
            problem = self._problem(letter)
        except (TypeError, ValueError):  # values of types that we never write
            problem = "the contents", "cannot be read"
        if problem:
            self._damaged.append(f"{problem[0]} of letter {letter.head.id} {problem[1]}")

    def add_unreadable(self, id_: str) -> None:
        """Record a letter that could not be decoded."""
        self._damaged.append(f"the head of letter {id_} cannot be read")

    def count_letter(self, id_: str) -> None:
        """Record that a letter exists."""
        self._letters += 1
        self._marks += self._of_letter(id_)

    def find(self, *findings: str) -> None:
        """Add findings of the store itself."""
        self._findings += findings

    def add_campaign(self, seq: int, id_: str, start: Start) -> None:
        """Add a campaign with its recorded start."""
        self._campaigns[seq] = id_
        self._starts[id_] = start

    def add_item_sum(self, sum_: ItemSum) -> None:
        """Add a stored sum of a campaign; call it before adding its items."""
        self._item_sums[sum_.campaign, sum_.outcome] = sum_

    def add_item(self, campaign: int, letter: int, outcome: str) -> None:
        """Examine a letter's item in a campaign, by the numbers of both."""
        place = campaign, outcome
        if place not in self._item_sums:
            self.add_item_sum(ItemSum(campaign, outcome, 0, self._sealing.key_id))
        marks = self._sealing.marks(self._item_sums[place].key)
        self._items[place] += 1
        self._item_marks[place] += marks.item(campaign, letter, outcome)

    def compare(self, ends: Ends, totals: Mapping[str, int]) -> None:
        """Compare what was added with the stored sums, after everything was added."""
        sums = self._sums
        if self._can_check("letters", sums.key, sums.deaths or sums.letter_marks):
            self._compare_letters(totals)
        self._compare_items()
        self.find(*self.chain.findings(ends))

    def _without_key(self) -> list[str]:
        found = []
        if letters := self._seen["unsealed"] + self._seen["unkeyed"]:
            are = many(letters, "letter is", "letters are")
            found.append(without_key(f"{are} sealed"))
        if sums := len(self._unkeyed):
            are = many(sums, "sum was", "sums were")
            names = ", ".join(self._unkeyed[:NAMED])
            found.append(without_key(f"{are} made ({names})"))
        return found

    def outdated(self, totals: Mapping[str, int]) -> Outdated:
        """
        Return the sums to make anew; damaged ones must not look sound after it.

        Those of a campaign are made anew together, or not at all.
        """
        sums = self._sums
        fits = sums.key is None or (self._has_letters() and self._has_deaths(totals))
        items = [one for one in self._item_sums.values() if self._is_outdated(one.key)]
        damaged = {
            one.campaign for one in items if one.key is not None and not self._has_items(one)
        }
        return Outdated(
            letters=self._is_outdated(sums.key) and fits,
            items=tuple(one for one in items if one.campaign not in damaged),
        )

    def _is_outdated(self, key: bytes | None) -> bool:
        sealing = self._sealing
        return key is None or (key != sealing.key_id and sealing.has(key))

    def _has_letters(self) -> bool:
        return self._marks & MASK == self._sums.letter_marks

    def _has_deaths(self, totals: Mapping[str, int]) -> bool:
        sums = self._sums
        return self._sealing.marks(sums.key).texts(totals) == sums.death_marks

    def _has_items(self, told: ItemSum) -> bool:
        return self._item_marks[told.campaign, told.outcome] & MASK == told.marks

    def _compare_letters(self, totals: Mapping[str, int]) -> None:
        sums = self._sums
        if not self._has_letters():
            self.find(
                "the letters that are there are not the ones that were kept and not"
                " purged: some are missing, or others were put in"
            )
        deaths = sum(totals.values())
        if deaths != sums.deaths:
            self.find(f"{sums.deaths} deaths were counted, but the groups say {deaths}")
        elif not self._has_deaths(totals):
            self.find(f"the groups count {deaths} deaths, but not their own ones")

    def _compare_items(self) -> None:
        names = self._campaigns
        counts = Counter(dict.fromkeys(names.values(), 0))
        for (seq, _), n in self._items.items():
            if seq in names:
                counts[names[seq]] += n
        self.find(*self._miscounted_items()[:NAMED])
        self.find(*self.chain.missing_plans(counts))
        self.find(*self.chain.changed_plans(self._starts))
        if stray := sum(n for (seq, _), n in self._items.items() if seq not in names):
            self.find(f"{stray} parts of campaigns belong to no campaign")
        changed = {
            names.get(one.campaign, "")
            for one in self._item_sums.values()
            if self._can_check(f"campaign {names.get(one.campaign, '')}", one.key, one.marks)
            and not self._has_items(one)
        }
        self.find(
            *(
                f"the letters of campaign {id_}, or what became of them, are not what"
                " was written down: some were added, taken out or changed"
                for id_ in sorted(changed)[:NAMED]
            )
        )

    def _miscounted_items(self) -> list[str]:
        return [
            f"campaign {self._campaigns[one.campaign]} says {one.letters} of its letters"
            f" are {one.outcome}, but {self._items[place]} are"
            for place, one in sorted(self._item_sums.items())
            if one.letters not in {None, self._items[place]} and one.campaign in self._campaigns
        ]

    def _can_check(self, what: str, key: bytes | None, marks: int) -> bool:
        """Return whether we have the key of a sum; note a sum without a key, unless it is 0."""
        if key is None:
            self._seen["sums_absent"] += 1
            self._note_unkeyed(what)
            return False
        if not self._sealing.has(key):
            self._seen["sums_unknown"] += 1
            return False
        if self._sealing.is_keyed and key == NO_KEY and marks:
            self._note_unkeyed(what)
        return True

    def _note_unkeyed(self, what: str) -> None:
        if what not in self._unkeyed:
            self._unkeyed.append(what)

    @property
    def is_sound(self) -> bool:
        """Return whether all letters so far match their seals, with keys we have."""
        return not self._damaged and not self._seen["unknown"]

    def result(self) -> Examined:
        """Return the findings."""
        chain = self.chain
        unkeyed = self._without_key() if self._sealing.is_keyed else ()
        return Examined(
            findings=(*self._findings, *self._damaged[:NAMED], *self._more(), *unkeyed),
            letters=self._letters,
            keyed=self._sealing.is_keyed,
            unsealed=self._seen["unsealed"],
            later=self._seen["later"],
            unknown=self._seen["unknown"],
            entries=chain.seq,
            entries_unkeyed=chain.unkeyed,
            entries_unknown=chain.unknown,
            sums_unknown=self._seen["sums_unknown"],
            sums_absent=self._seen["sums_absent"],
        )

    def _more(self) -> list[str]:
        more = len(self._damaged) - NAMED
        return [f"{more} more letters are damaged"] if more > 0 else []

    def _problem(self, letter: SealedLetter) -> tuple[str, str] | None:
        current, original = letter.message, letter.original
        for message in (current, original):
            if message and body_digest(message.body) != message.digest:
                return "the body", "is not the one that was kept"
        seals = [current.seal, letter.seal] + ([original.seal] if original else [])
        self._note(seals)
        head = letter.head
        if not self._is_message(head, current, EDITED if original else KEPT):
            return "the message", "is not the one that was sealed"
        if head.size != len(current.body) or head.key != key_of(current.rest):
            return "the head", "is not that of its message"
        if original and not self._is_message(head, original, KEPT):
            return "the original message", "is not the one that was sealed"
        if not self._is_story(letter):
            return "the story", "is not the one that was sealed"
        if letter.generations and head.replays != max(letter.generations):
            told = f"says {head.replays} replays, but it was replayed"
            return "the head", f"{told} {max(letter.generations)} times"
        return None

    def _note(self, seals: list[bytes | None]) -> None:
        if None in seals:
            self._seen["unsealed"] += 1
            return
        self._seen["later"] += any(seal and seal[:1] == FOUND for seal in seals)
        names = {self._sealing.knows(seal) for seal in seals if seal}
        self._seen["unknown"] += None in names
        self._seen["unkeyed"] += False in names and None not in names

    def _is_message(self, head: LetterHead, message: SealedMessage, kind: bytes) -> bool:
        seal = message.seal
        if seal is not None and seal[:1] not in (kind, FOUND):
            return False
        verdict = self._sealing.check_message(seal, head, message.digest, message.rest)
        return verdict is not Verdict.BAD

    def _is_story(self, letter: SealedLetter) -> bool:
        # It was sealed when it died; how often it was replayed by then is one of these.
        generations = letter.generations
        counts = [*generations, min(generations) - 1] if generations else ()
        more = (letter.frame, letter.history, letter.generation, letter.spent)
        verdicts = {
            self._sealing.check_story(letter.seal, replace(letter.head, replays=count), more)
            for count in counts or (letter.head.replays,)
        }
        return verdicts != {Verdict.BAD}


def renewed(letter: SealedLetter, sealing: Sealing) -> tuple[bytes, bytes, bytes | None] | None:
    """
    Return new seals of a letter's message, story and original.

    Returns None if the letter is sealed with the first key already, or does not match its
    seals: damage must stay visible.
    """
    original = letter.original
    seals = (letter.message.seal, letter.seal, *([original.seal] if original else ()))
    if all(sealing.is_current(seal) for seal in seals):
        return None
    examination = Examination(sealing)
    examination.add(letter)
    if not examination.is_sound:
        return None
    head, current = letter.head, letter.message
    more = (letter.frame, letter.history, letter.generation, letter.spent)
    return (
        sealing.message(head, current.digest, current.rest, FOUND),
        sealing.story(head, more, FOUND),
        sealing.message(head, original.digest, original.rest, FOUND) if original else None,
    )
