"""
One writer's turn: a transaction that has the whole office to itself.

Everything that changes letters begins by counting its turn in one document, so that
of two at once the later one is sent away at once and comes again: what a turn reads
stays true until it ends. What it changes is counted and audited when it ends, in
the same transaction, so that nobody ever has to count letters to show a number.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from pymongo import ReturnDocument, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.audit import act, seal
from deadletter.core.errors import Unavailable
from deadletter.core.escaping import stored
from deadletter.core.letter import OPEN, AuditEntry, By, LetterHead, State
from deadletter.core.marks import MASK, Marks
from deadletter.core.seals import PLAIN, Sealing

from .audit import document_of
from .schema import OFFICE, Collections, Document

Session: TypeAlias = AsyncClientSession


class Turn:
    """A transaction under way; `numbers` are the office's, written at the end."""

    def __init__(
        self,
        there: Collections,
        session: Session,
        office: Document,
        sealing: Sealing = PLAIN,
    ) -> None:
        self.there = there
        self.session = session
        self.sealing = sealing
        self.numbers: Document = office
        self._acts: list[AuditEntry] = []
        self._by_group: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._by_source: defaultdict[str, Counter[State]] = defaultdict(Counter)
        self._deaths: dict[str, tuple[Document, int]] = {}

    def next_seq(self) -> int:
        """A number that nothing else has or will have."""
        self.numbers["seq"] += 1
        return int(self.numbers["seq"])

    def count(self, what: str, n: int) -> None:
        """So many letters more were kept, purged or expired."""
        self.numbers[what] += n

    def note_letters(self, letters: Mapping[str, int]) -> None:
        """Add letters to the sum of those that are there, or take some off."""
        if (marks := self._marks()) is not None:
            total = self.numbers["letter_marks"] + marks.texts(letters)
            self.numbers["letter_marks"] = total & MASK

    def note_deaths(self, deaths: Mapping[str, int]) -> None:
        """Note how many deaths more or less groups count, which `verify` goes by."""
        if (marks := self._marks()) is not None:
            self.numbers["deaths"] += sum(deaths.values())
            total = self.numbers["death_marks"] + marks.texts(deaths)
            self.numbers["death_marks"] = total & MASK

    def _marks(self) -> Marks | None:
        """Return the marks of the office's sums; None where nobody has begun any."""
        numbers = self.numbers
        if "marks_key" not in numbers:
            return None
        if not (numbers["letter_marks"] or numbers["deaths"]):
            numbers["marks_key"] = self.sealing.key_id
        return self.sealing.marks(numbers["marks_key"])

    def shift(
        self, source: str, fingerprint: str, changes: Mapping[State, int]
    ) -> None:
        """So many letters more or less are in these states."""
        for state, n in changes.items():
            self._by_group[fingerprint][state] += n
        self.shift_source(source, changes)

    def shift_source(self, source: str, changes: Mapping[State, int]) -> None:
        """So many letters more or less of a source are in these states."""
        for state, n in changes.items():
            self._by_source[source][state] += n

    def shift_head(self, head: LetterHead, by: int) -> None:
        """One letter more or less is where its head says."""
        self.shift(head.source, head.fingerprint, {head.state: by})

    def died(self, fingerprint: str, group: Document, n: int) -> None:
        """So many letters more died of this, which leaves its group like that."""
        self._deaths[fingerprint] = group, n

    def act(
        self, action: str, target: str, by: By, *, at: datetime, detail: str = ""
    ) -> None:
        """Have an act audited."""
        self.audit([act(action, target, by, at=at, detail=detail)])

    def audit(self, acts: Iterable[AuditEntry]) -> None:
        """Have acts audited."""
        self._acts += acts

    async def end(self) -> None:
        """Write down what was counted and what was done."""
        groups = [
            _change(name, self._by_group[name], *self._deaths.get(name, ({}, 0)))
            for name in dict.fromkeys([*self._deaths, *self._by_group])
        ]
        if groups:
            await self.there.groups.bulk_write(groups, session=self.session)
        sources = [
            UpdateOne({"_id": stored(name)}, {"$inc": _states(states)}, upsert=True)
            for name, states in self._by_source.items()
        ]
        if sources:
            await self.there.sources.bulk_write(sources, session=self.session)
        if self._acts:
            await self._append(self._acts)
        await self.there.office.replace_one(
            {"_id": OFFICE}, self.numbers, session=self.session
        )

    async def _append(self, acts: Iterable[AuditEntry]) -> None:
        numbers = self.numbers
        entries = seal(
            acts,
            seq=numbers["audit_seq"],
            previous=numbers["audit_hash"],
            sealing=self.sealing,
        )
        await self.there.audit.insert_many(
            [document_of(entry) for entry in entries], session=self.session
        )
        numbers["audit_seq"], numbers["audit_hash"] = entries[-1].seq, entries[-1].hash


async def begin(there: Collections, session: Session, sealing: Sealing = PLAIN) -> Turn:
    """Take a turn, or be sent away because somebody else has it."""
    office = await there.office.find_one_and_update(
        {"_id": OFFICE},
        {"$inc": {"turn": 1}},
        return_document=ReturnDocument.AFTER,
        session=session,
    )
    if office is None:
        raise Unavailable(
            "the collections of deadletter are gone: restart this process to make them"
            " anew"
        )
    return Turn(there, session, office, sealing)


def _change(
    name: str, states: Counter[State], group: Document, deaths: int
) -> UpdateOne:
    opened = sum(n for state, n in states.items() if state in OPEN)
    more = {**_states(states), "open": opened, "total": deaths}
    changes: Document = {"$inc": more, "$set": group} if group else {"$inc": more}
    return UpdateOne({"_id": stored(name)}, changes, upsert=True)


def _states(states: Counter[State]) -> dict[str, int]:
    return {f"states.{state}": n for state, n in states.items()}
