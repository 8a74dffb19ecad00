"""A verdict per letter before anything is sent."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from deadletter.core.letter import DeadLetter, LetterHead, State, sources_of
from deadletter.core.redact import is_secret_name
from deadletter.ports import Ledger, LedgerKey, LedgerState

REPLAYABLE: Final = sources_of(State.REPLAYING)
SAMPLES: Final = 5


class Verdict(StrEnum):
    """What to expect of replaying one letter. The first that applies."""

    WRONG_STATE = "wrong-state"  # not sent: replaying, replayed, closed, discarded
    PAST_CAP = "past-cap"  # not sent: quarantined instead
    PROCESSED = "already-processed"  # the ledger has seen it handled meanwhile
    EXPIRED = "expired"  # too late by its own word; its copy goes without the expiry
    NO_MAILBOX = "no-mailbox"  # nobody has made or worked that mailbox yet
    CREDENTIALS = "credentials"  # its headers hold some, which may be stale by now
    ORDERED = "ordered"  # newer messages of its key may have gone ahead
    READY = "ready"


BLOCKED: Final = frozenset({Verdict.WRONG_STATE, Verdict.PAST_CAP})
"""Verdicts with which a letter is not sent at all."""


class Plan(Struct, frozen=True, kw_only=True):
    """What a replay would do, before it does it."""

    query: str
    total: int = 0
    verdicts: dict[Verdict, int] = {}
    samples: dict[Verdict, tuple[str, ...]] = {}
    sources: dict[str, int] = {}
    states: dict[State, int] = {}
    targets: dict[str, int] = {}
    more: bool = False  # the limit cut it off

    @property
    def sendable(self) -> int:
        """How many letters would be sent."""
        return self.total - sum(self.verdicts.get(verdict, 0) for verdict in BLOCKED)


class Preflight(Struct, frozen=True, kw_only=True):
    """All there is to know for judging letters."""

    now: datetime
    cap: int
    to: str | None
    mailboxes: frozenset[str] | None  # None: nobody can know
    ledger: Ledger | None

    async def judge(self, letters: Sequence[DeadLetter]) -> list[Verdict]:
        """A verdict for each letter."""
        processed = await self._processed(letters)
        return [
            self._verdict(letter, done)
            for letter, done in zip(letters, processed, strict=True)
        ]

    def _verdict(self, letter: DeadLetter, processed: bool) -> Verdict:
        head, message = letter.head, letter.message
        if head.state not in REPLAYABLE:
            return Verdict.WRONG_STATE
        if head.replays >= self.cap:
            return Verdict.PAST_CAP
        if processed:
            return Verdict.PROCESSED
        if message.expires_at is not None and message.expires_at <= self.now:
            return Verdict.EXPIRED
        known = self.mailboxes
        if known is not None and target_of(head, self.to) not in known:
            return Verdict.NO_MAILBOX
        if any(is_secret_name(name) for name, _ in message.headers):
            return Verdict.CREDENTIALS
        return Verdict.READY if head.key is None else Verdict.ORDERED

    async def _processed(self, letters: Sequence[DeadLetter]) -> list[bool]:
        if self.ledger is None:
            return [False] * len(letters)
        keys = [
            LedgerKey.of_message(
                target_of(letter.head, self.to),
                letter.head.business_key or letter.head.message_id,
                letter.head.replays,
            )
            for letter in letters
        ]
        states = await self.ledger.look(keys)
        return [state is LedgerState.PROCESSED for state in states]


class Tally:
    """Adds up verdicts, page by page, to a plan."""

    def __init__(self, to: str | None) -> None:
        self._to = to
        self._total = 0
        self._verdicts: Counter[Verdict] = Counter()
        self._samples: dict[Verdict, list[str]] = {}
        self._sources: Counter[str] = Counter()
        self._states: Counter[State] = Counter()
        self._targets: Counter[str] = Counter()

    def add(self, letters: Sequence[DeadLetter], verdicts: Sequence[Verdict]) -> None:
        """Count a page."""
        self._total += len(letters)
        for letter, verdict in zip(letters, verdicts, strict=True):
            head = letter.head
            self._verdicts[verdict] += 1
            self._sources[head.source] += 1
            self._states[head.state] += 1
            if verdict not in BLOCKED:
                self._targets[target_of(head, self._to)] += 1
            samples = self._samples.setdefault(verdict, [])
            if len(samples) < SAMPLES:
                samples.append(head.id)

    def plan(self, query: str, *, more: bool) -> Plan:
        """What all of it comes to."""
        return Plan(
            query=query,
            total=self._total,
            verdicts={v: self._verdicts[v] for v in Verdict if self._verdicts[v]},
            samples={verdict: tuple(ids) for verdict, ids in self._samples.items()},
            sources=dict(self._sources.most_common()),
            states=dict(self._states.most_common()),
            targets=dict(self._targets.most_common()),
            more=more,
        )


def target_of(head: LetterHead, to: str | None) -> str:
    """The mailbox a copy of this letter goes to."""
    return to or head.source
