"""
The rules of filing a letter: it is new, it died again, or nothing about it is new.

`office.transactions.filing` looks letters up, and writes and counts what is decided here.

The same death reported twice (after a crash or a lost reply) changes nothing: it neither
reopens a closed letter nor counts again. Attempts never shrink, and no body ever disappears.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .attempts import join, read
from .audit import DIED_AGAIN, act
from .errors import ConfigError, Conflict
from .ids import body_digest, letter_id
from .letter import OPEN, AuditEntry, DeadLetter, LetterHead, State
from .message import Lineage
from .replay_rules import came_back, is_out
from .seals import EDITED, KEPT, Sealing

_DECIDED: Final = frozenset({State.CLOSED, State.DISCARDED})
_NOT_RUN: Final = frozenset({"worker-lost", "expired", "id-conflict", "cut"})


FINISHED: Final = frozenset({State.REPLAYED, State.CLOSED, State.DISCARDED})
"""States in which no more work is needed: only letters in these may expire."""


class Known(Struct, frozen=True, kw_only=True, gc=False):
    """A stored letter without its contents."""

    seq: int = 0  # its number in the store; 0 is a new letter
    head: LetterHead
    digest: bytes  # of the body that died
    edited: bytes | None = None  # of the body that it was given since
    history: str = ""
    frame: str = ""
    generation: int = 0  # the one that attempts were counted for last
    spent: int = 0  # attempts counted for it
    cap: int | None = None  # of the campaign that sent it out last

    @property
    def current(self) -> bytes:
        """The digest of the current body."""
        return self.digest if self.edited is None else self.edited

    def is_about(self, digest: bytes) -> bool:
        """Return whether a body of this digest is the letter's, before or after an edit."""
        return digest in (self.digest, self.edited)


def message_seal(known: Known, letter: DeadLetter, rest: bytes, sealing: Sealing) -> bytes:
    """Return the seal of a new letter's message, whose other fields are packed in `rest`."""
    kind = KEPT if letter.original is None else EDITED
    return sealing.message(known.head, known.current, rest, kind)


def story_seal(known: Known, sealing: Sealing) -> bytes:
    """Return the seal of a letter's story."""
    more = (known.frame, known.history, known.generation, known.spent)
    return sealing.story(known.head, more)


class Copy(Struct, frozen=True, gc=False):
    """A replayed copy, by its letter and generation."""

    letter_id: str
    generation: int


class Filed(Struct, frozen=True, kw_only=True, gc=False):
    """
    The result of filing one letter.

    Without `after`, the letter brought nothing new. `died` says whether it counts as a death.
    `failed` is the replayed copy that it brings news of, perhaps of another letter.
    """

    id: str
    letter: DeadLetter
    before: Known | None
    after: Known | None
    died: bool = True
    failed: Copy | None = None

    @property
    def conflict(self) -> bool:
        """Return whether the letter is marked because its message id was reused."""
        known = self.after or self.before
        return known is not None and known.head.conflict


class Filing:
    """
    Letters that are to be kept, and the decision what that changes.

    Letters of one batch see each other: two of one identity become one, or are set apart.
    """

    def __init__(self, letters: Iterable[DeadLetter]) -> None:
        self._arrivals = [_arrival(letter) for letter in letters]

    @property
    def ids(self) -> list[str]:
        """The ids of stored letters that matter."""
        return _addresses(self._arrivals)

    def rivals(self, known: Mapping[str, Known]) -> list[str]:
        """Return more ids that matter, once those of `ids` are known; mostly none."""
        return _rivals(self._arrivals, known)

    def decide(self, known: Mapping[str, Known]) -> list[Filed]:
        """Return what keeping each letter changes, in their order."""
        there = dict(known)
        filed: list[Filed] = []
        for arrival in self._arrivals:
            if arrival.is_usual and arrival.identity not in there:
                one = _new(arrival, arrival.identity, conflict=False)
            else:
                one = _filed(arrival, there)
            if one.after is not None:
                there[one.id] = one.after
            filed.append(one)
        return filed


def needs_a_look(letter: DeadLetter) -> bool:
    """Return whether a letter of another id may decide where this one is filed."""
    return letter.message.lineage is not None or letter.head.conflict


def failed_copies(filed: Iterable[Filed]) -> list[Copy]:
    """Return the replayed copies that came back with these letters."""
    return [one.failed for one in filed if one.failed is not None]


def reopened(filed: Iterable[Filed], now: datetime) -> list[AuditEntry]:
    """Return audit entries for closed or discarded letters that are open again."""
    return [
        act("reopen", one.id, DIED_AGAIN, at=now, detail=f"was {before.head.state}")
        for one in filed
        if (before := one.before) is not None
        and before.head.state in _DECIDED
        and one.after is not None
        and one.after.head.state is State.PENDING
    ]


def check_expiry(states: Iterable[State], *, unreviewed: bool = False) -> None:
    """
    Reject the expiry of letters in states that still need work.

    `unreviewed` permits the open states as well. Letters that wait for the outcome of a replay
    never expire.
    """
    permitted = FINISHED | OPEN if unreviewed else FINISHED
    for state in states:
        if state not in permitted:
            raise ConfigError(
                f"letters that are {state} never expire: take it out of the retention;"
                f" only these may be in it: {', '.join(sorted(permitted))}"
            )


def check_purge(identity: str, state: State) -> None:
    """Reject the deletion of a letter whose copy is out: its outcome would be lost."""
    if state is State.REPLAYING:
        raise Conflict(
            f"letter {identity} is {state}: wait for its outcome, or move it back to"
            f" {State.PENDING} first; nothing was purged"
        )


class _Arrival(Struct, frozen=True, gc=False):
    letter: DeadLetter
    digest: bytes  # as it died
    identity: str
    is_usual: bool  # only the letter of its identity matters

    @property
    def apart(self) -> str:
        """The id of this letter if its message id was reused."""
        head = self.letter.head
        return letter_id(head.source, head.partition, head.message_id, self.digest)


def _arrival(letter: DeadLetter) -> _Arrival:
    head = letter.head
    identity = letter_id(head.source, head.partition, head.message_id)
    died = letter.message if letter.original is None else letter.original
    is_usual = letter.message.lineage is None and not head.conflict
    return _Arrival(letter, body_digest(died.body), identity, is_usual)


def _addresses(arrivals: Sequence[_Arrival]) -> list[str]:
    addresses = dict.fromkeys([arrival.identity for arrival in arrivals])
    for arrival in [arrival for arrival in arrivals if not arrival.is_usual]:
        if arrival.letter.message.lineage is not None:
            addresses[arrival.letter.message.lineage.letter_id] = None
        if arrival.letter.head.conflict:
            addresses[arrival.apart] = None
    return list(addresses)


def _rivals(arrivals: Iterable[_Arrival], known: Mapping[str, Known]) -> list[str]:
    """Return the ids of letters that may have to be kept apart."""
    first: dict[str, bytes] = {}
    return [
        arrival.apart
        for arrival in arrivals
        # The common case without a call; `_belongs` would answer the same.
        if not (
            arrival.is_usual
            and arrival.identity not in known
            and first.setdefault(arrival.identity, arrival.digest) == arrival.digest
        )
        and not _belongs(arrival, known, first)
        and arrival.apart not in known
    ]


def _belongs(arrival: _Arrival, known: Mapping[str, Known], first: dict[str, bytes]) -> bool:
    sender = _sender(arrival, known)
    if sender is not None:
        return sender.is_about(arrival.digest)
    there = known.get(arrival.identity)
    if there is not None:
        return there.is_about(arrival.digest)
    is_alike = first.setdefault(arrival.identity, arrival.digest) == arrival.digest
    # The letter that it claims to be a copy of may be new in this batch.
    return is_alike and arrival.letter.message.lineage is None


def _filed(arrival: _Arrival, known: Mapping[str, Known]) -> Filed:
    sender = _sender(arrival, known)
    if sender is not None and sender.is_about(arrival.digest):
        return _died_again(arrival, sender)
    identity, conflict = arrival.identity, False
    there = known.get(identity)
    if there is None:
        conflict = arrival.letter.head.conflict or sender is not None
    else:
        conflict = not there.is_about(arrival.digest)
    if conflict:
        identity = arrival.apart
        there = known.get(identity)
    if there is None:
        filed = _new(arrival, identity, conflict=conflict)
    else:
        filed = _died_again(arrival, there)
    return filed if sender is None else _changed(filed, sender)


def _sender(arrival: _Arrival, known: Mapping[str, Known]) -> Known | None:
    """Return the letter that this claims to be a copy of, if its id or body fits."""
    message = arrival.letter.message
    there = None if message.lineage is None else known.get(message.lineage.letter_id)
    # A lineage is only a claim, made by a header on some engines.
    if there is None or not (there.head.message_id == message.id or there.is_about(arrival.digest)):
        return None
    return there


def _changed(filed: Filed, sender: Known) -> Filed:
    """
    Add the news of a copy that came back with another body than it was sent with.

    Its body is kept as a letter of its own, so that it does not get lost. The sender's copy has
    failed all the same.
    """
    head, lineage = sender.head, filed.letter.message.lineage
    assert lineage is not None
    if not filed.died and not is_out(head.state, head.replays, lineage.generation):
        return filed
    return replace(filed, failed=Copy(head.id, lineage.generation))


def _new(arrival: _Arrival, identity: str, *, conflict: bool) -> Filed:
    letter, head = arrival.letter, arrival.letter.head
    if head.id != identity or head.conflict != conflict:  # hardly ever
        head = replace(head, id=identity, conflict=conflict)
    after = Known(
        head=head,
        digest=arrival.digest,
        edited=None if letter.original is None else body_digest(letter.message.body),
        history=letter.history,
        frame=letter.frame,
        generation=letter.message.generation,
        spent=head.attempts,
    )
    return Filed(id=identity, letter=letter, before=None, after=after)


def _died_again(arrival: _Arrival, before: Known) -> Filed:
    letter, head = arrival.letter, before.head
    lineage = _lineage(before, letter)
    late = lineage is not None and lineage.generation < head.replays
    news = _news(before.history, letter.history)
    grown = _grown(before, letter, news)
    died = (
        grown > 0
        or letter.message.generation > before.generation
        or (bool(news) and news == letter.history)  # a history of its own
        or (not letter.history and not late and letter.head.dead_at > head.dead_at)
    )
    generation = _copy(before, letter, lineage, died=died)
    failed = None if generation is None else Copy(head.id, generation)
    after = None
    if died or news:
        after = _after(before, letter, news, grown, died=died, late=late)
    return Filed(id=head.id, letter=letter, before=before, after=after, died=died, failed=failed)


def _lineage(before: Known, letter: DeadLetter) -> Lineage | None:
    """Return which copy of this letter a message claims to be."""
    lineage = letter.message.lineage
    if lineage is None or lineage.letter_id != before.head.id:
        return None
    return lineage


def _copy(before: Known, letter: DeadLetter, lineage: Lineage | None, *, died: bool) -> int | None:
    """Return the generation of the copy whose death this is, if that is news."""
    head = before.head
    if lineage is not None:
        waits = is_out(head.state, head.replays, lineage.generation)
        return lineage.generation if died or waits else None
    # A copy may come back without the header that names its letter.
    if not died or not head.replays:
        return None
    is_later = letter.head.dead_at > head.dead_at
    return head.replays if head.state is State.REPLAYING or is_later else None


def _news(told: str, story: str) -> str:
    # Histories only grow: what precedes a known line is known as well, even where a
    # long history has been cut since.
    known = set(told.split("\n"))
    lines = story.split("\n")
    for index in range(len(lines), 0, -1):
        if lines[index - 1] in known:
            return "\n".join(lines[index:])
    return story


def _grown(before: Known, letter: DeadLetter, news: str) -> int:
    # An engine may count attempts, report a history, do both, or start over.
    ran = sum(attempt.outcome not in _NOT_RUN for attempt in read(news))
    generation, attempts = letter.message.generation, letter.head.attempts
    if generation > before.generation:
        return max(ran, attempts)
    if generation == before.generation:
        return max(ran, attempts - before.spent)
    return ran


def _after(
    before: Known, letter: DeadLetter, news: str, grown: int, *, died: bool, late: bool
) -> Known:
    head, new = before.head, letter.head
    generation, spent = before.generation, before.spent
    if letter.message.generation == generation:
        spent = max(spent, new.attempts)
    elif letter.message.generation > generation:
        generation, spent = letter.message.generation, new.attempts
    latest = died and new.dead_at >= head.dead_at
    return replace(
        before,
        head=replace(
            _last_seen(head, new) if latest else head,
            state=_state(before) if died and not late else head.state,
            attempts=head.attempts + (grown if new.attempts else 0),
            first_failed_at=min(head.first_failed_at, new.first_failed_at),
            revision=head.revision + 1,
        ),
        history=join(before.history, news),
        frame=letter.frame if latest else before.frame,
        generation=generation,
        spent=spent,
    )


def _last_seen(head: LetterHead, new: LetterHead) -> LetterHead:
    return replace(
        head,
        reason=new.reason,
        reason_text=new.reason_text,
        trouble=new.trouble,
        code=new.code,
        error_type=new.error_type,
        error_text=new.error_text,
        fingerprint=new.fingerprint,
        dead_at=new.dead_at,
        consumer=new.consumer,
        version=new.version,
        trace_id=new.trace_id or head.trace_id,
    )


def _state(before: Known) -> State:
    head = before.head
    if head.state in _DECIDED:
        return State.PENDING
    if head.state in {State.REPLAYING, State.REPLAYED}:
        return came_back(head.replays, before.cap)
    return head.state
