"""Preflight: a verdict per letter before anything is sent."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from msgspec import Struct

from deadletter.core.campaign import AT_ONCE, Care, Treatment, Verdict
from deadletter.core.errors import BackendError, Refused
from deadletter.core.letter import DeadLetter, LetterHead, ReviewOrder, State, sources_of
from deadletter.core.message import Message
from deadletter.core.redact import is_secret_name
from deadletter.intake.dialects import origin_of
from deadletter.ports import Ledger, LedgerKey, LedgerState, ReplayNext, WaysBack

SAMPLES: Final = 5


Fits: TypeAlias = Callable[[str, Message], bool]
"""A function that returns whether a mailbox's handler can read a message, if known."""


class LetterVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on one letter."""

    letter_id: str
    source: str
    target: str
    verdict: Verdict


class LetterVerdicts(Struct, frozen=True):
    """Verdicts on some letters of a replay, in their order; `after` continues."""

    letters: tuple[LetterVerdict, ...]
    after: int | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The expected effects of a replay."""

    query: str
    total: int = 0
    verdicts: dict[Verdict, int] = {}
    samples: dict[Verdict, tuple[str, ...]] = {}
    sources: dict[str, int] = {}
    states: dict[State, int] = {}
    targets: dict[str, int] = {}
    more: bool = False  # the limit cut it off
    left_out: tuple[Verdict, ...] = ()  # of the verdicts above, those not sent
    asked: tuple[Verdict, ...] = ()  # those sent only if somebody agrees
    through: str = ""  # the server of others that they go back to

    @property
    def sendable(self) -> int:
        """Return how many letters would be sent."""
        return self.total - sum(self.verdicts[verdict] for verdict in self.left_out)


class Preflight(Struct, frozen=True, kw_only=True):
    """Everything that verdicts depend on."""

    now: datetime
    cap: int
    to: str | None
    mailboxes: frozenset[str] | None  # None: nobody can know
    ledger: Ledger | None
    fits: Fits | None = None  # None: the handlers are not known here
    ways: WaysBack | None = None  # None: nobody asks where letters were drained from
    through: str = ""  # the server of others that they go back to
    is_chosen: bool = False  # somebody said so; otherwise it is that of the first one
    order: ReviewOrder = ReviewOrder.FREE

    async def judge(self, letters: Sequence[DeadLetter]) -> list[Verdict]:
        """Return a verdict for each letter."""
        processed = await self._processed(letters)
        in_use = await self._in_use(letters)
        return [
            self._verdict(letter, done, taken)
            for letter, done, taken in zip(letters, processed, in_use, strict=True)
        ]

    def _verdict(self, letter: DeadLetter, processed: bool, is_id_in_use: bool) -> Verdict:
        head, message = letter.head, letter.message
        if head.state not in sources_of(State.REPLAYING, self.order):
            return Verdict.WRONG_STATE
        if head.replays >= self.cap:
            return Verdict.PAST_CAP
        if self._is_elsewhere(letter):
            return Verdict.ELSEWHERE
        if processed:
            return Verdict.PROCESSED
        if self.fits is not None and not self.fits(target_of(head, self.to), message):
            return Verdict.UNREADABLE
        if is_id_in_use:
            return Verdict.ID_IN_USE
        if message.expires_at is not None and message.expires_at <= self.now:
            return Verdict.EXPIRED
        known = self.mailboxes
        if known is not None and target_of(head, self.to) not in known:
            return Verdict.NO_MAILBOX
        if any(is_secret_name(name) for name, _ in message.headers):
            return Verdict.CREDENTIALS
        return Verdict.READY if head.key is None else Verdict.ORDERED

    def _is_elsewhere(self, letter: DeadLetter) -> bool:
        """Return whether a letter was drained from a server that this replay does not use."""
        if self.ways is None:
            return False
        origin = origin_of(letter.message)
        if not self.through:
            if origin is None or self.to is not None:
                return False
            return self.ways.way_of(origin.server) != ""
        way = None if origin is None else self.ways.way_of(origin.server)
        if way != self.through and not self.is_chosen:
            return True
        try:
            target = target_of(letter.head, self.to)
            self.ways.check(self.through, letter.message, target)
        except Refused:
            return True
        return False

    async def _in_use(self, letters: Sequence[DeadLetter]) -> Sequence[bool]:
        """Return the letters whose id is in use on the foreign server."""
        if self.ways is None or not self.through:
            return [False] * len(letters)
        asked = [(target_of(one.head, self.to), one.message) for one in letters]
        try:
            return await self.ways.ids_in_use(self.through, asked)
        except BackendError:  # nobody knows now; it looks again when it is sent to
            return [False] * len(letters)

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
        return await are_processed(self.ledger, keys)


class Tally:
    """A sum of verdicts, page by page."""

    def __init__(self, to: str | None, care: Care = AT_ONCE) -> None:
        self._to = to
        self._care = care
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
            if self._care.sends(verdict):
                self._targets[target_of(head, self._to)] += 1
            samples = self._samples.setdefault(verdict, [])
            if len(samples) < SAMPLES:
                samples.append(head.id)

    def plan(self, query: str, *, more: bool, through: str = "") -> Plan:
        """Return the plan of everything counted."""
        return Plan(
            query=query,
            total=self._total,
            verdicts={v: self._verdicts[v] for v in Verdict if self._verdicts[v]},
            samples={verdict: tuple(ids) for verdict, ids in self._samples.items()},
            sources=dict(self._sources.most_common()),
            states=dict(self._states.most_common()),
            targets=dict(self._targets.most_common()),
            more=more,
            left_out=self._treated(Treatment.LEAVE_OUT),
            asked=self._treated(Treatment.ASK),
            through=through,
        )

    def _treated(self, how: Treatment) -> tuple[Verdict, ...]:
        found = (verdict for verdict in Verdict if self._verdicts[verdict])
        return tuple(one for one in found if self._care.treats(one) is how)


def name_verdicts(
    letters: Sequence[DeadLetter], verdicts: Sequence[Verdict], to: str | None
) -> tuple[LetterVerdict, ...]:
    """Return each verdict with the id of its letter."""
    return tuple(
        LetterVerdict(
            letter_id=letter.id,
            source=letter.head.source,
            target=target_of(letter.head, to),
            verdict=verdict,
        )
        for letter, verdict in zip(letters, verdicts, strict=True)
    )


async def are_processed(ledger: Ledger, keys: Sequence[LedgerKey]) -> list[bool]:
    """Return for each key whether the ledger has seen it processed."""
    return [state is LedgerState.PROCESSED for state in await ledger.look(keys)]


async def processed_since(
    ledger: Ledger, letters: Sequence[ReplayNext], to: str | None
) -> frozenset[str]:
    """Return the ids of letters that the ledger has seen processed by now."""
    keys = [LedgerKey.of_message(to or one.source, one.name, one.replays) for one in letters]
    done = await are_processed(ledger, keys)
    found = zip(letters, done, strict=True)
    return frozenset(one.letter_id for one, is_done in found if is_done)


def target_of(head: LetterHead, to: str | None) -> str:
    """Return the mailbox that a copy of this letter goes to."""
    return to or head.source
