"""Dead letters, their states and edits, groups, and audit entries."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from .attempts import Attempt, read
from .errors import ConfigError, Conflict, NotFound
from .failure import ErrorCategory, Reason, Trouble
from .message import Headers, Message, checked


class State(StrEnum):
    """The review states of a letter."""

    PENDING = "pending"  # not reviewed yet
    REVIEWED = "reviewed"  # somebody has looked at it
    REPLAYING = "replaying"  # sent back; the outcome is not known yet
    REPLAYED = "replayed"  # sent back, and settled by its consumer
    CLOSED = "closed"  # no more work needed
    QUARANTINED = "quarantined"  # replayed too often: only people may replay it
    DISCARDED = "discarded"  # dropped; can be restored until purged


OPEN: Final = frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED})
"""States in which somebody still has to do something."""


def still_open(counts: Mapping[State, int]) -> int:
    """Return the number of letters in open states, given counts by state."""
    return sum(counts.get(state, 0) for state in OPEN)


MOVES: Final[dict[State, frozenset[State]]] = {
    State.PENDING: frozenset(
        {State.REVIEWED, State.REPLAYING, State.CLOSED, State.DISCARDED} | {State.QUARANTINED}
    ),
    State.REVIEWED: frozenset(
        {State.PENDING, State.REPLAYING, State.CLOSED, State.DISCARDED} | {State.QUARANTINED}
    ),
    State.REPLAYING: frozenset(
        {State.REPLAYED, State.PENDING, State.QUARANTINED} | {State.CLOSED, State.DISCARDED}
    ),
    State.REPLAYED: frozenset({State.CLOSED, State.PENDING, State.QUARANTINED}),
    State.CLOSED: frozenset({State.PENDING}),
    State.QUARANTINED: frozenset({State.PENDING, State.REPLAYING, State.CLOSED, State.DISCARDED}),
    State.DISCARDED: frozenset({State.PENDING}),
}


class ReviewOrder(StrEnum):
    """The order in which people take letters through their states."""

    FREE = "free"  # a letter may be replayed or closed without a review
    IN_ORDER = "in-order"  # pending, reviewed, replayed, closed: no step is left out


_STEPS: Final = {State.REPLAYING: State.REVIEWED, State.CLOSED: State.REPLAYED}


def sources_of(target: State, order: ReviewOrder = ReviewOrder.FREE) -> frozenset[State]:
    """Return the states from which a letter may move to `target`."""
    if order is ReviewOrder.IN_ORDER and target in _STEPS:
        return frozenset({_STEPS[target]})
    return frozenset(state for state, targets in MOVES.items() if target in targets)


class LetterHead(Struct, frozen=True, kw_only=True, gc=False):
    """
    The fields of a letter that lists show: everything but its contents.

    Heads are small, so that millions of them can be searched.
    """

    id: str
    source: str  # the mailbox it came from
    message_id: str
    state: State = State.PENDING
    partition: str = ""
    key: str | None = None
    business_key: str | None = None  # idempotency key
    reason: Reason = Reason.ATTEMPTS_EXHAUSTED
    reason_text: str = ""
    trouble: Trouble = Trouble.UNKNOWN
    code: str = ""
    error_type: str = ""
    error_text: str = ""
    fingerprint: str = ""
    attempts: int = 1  # 0: unknown, the source does not say
    first_failed_at: datetime
    dead_at: datetime  # of the latest death, if it was replayed and died again
    consumer: str = ""  # handler, node or stage that gave up on it
    version: str = ""  # of the application that gave up on it
    trace_id: str | None = None
    replays: int = 0
    conflict: bool = False  # its message id was reused with another body
    size: int = 0
    revision: int = 0  # grows with every change of state, message or head

    @property
    def category(self) -> ErrorCategory:
        """Return whether a retry could have succeeded."""
        return self.trouble.category

    @property
    def error_name(self) -> str:
        """The error type without its module."""
        return error_name(self.error_type)


def error_name(error_type: str) -> str:
    """Return an error type without its module."""
    return error_type.rpartition(".")[2]


class DeadLetter(Struct, frozen=True, kw_only=True, gc=False):
    """The durable record of one message that could not be processed."""

    head: LetterHead
    message: Message
    history: str = ""  # JSON lines, see core.attempts
    position: str | None = None
    first_received_at: datetime | None = None
    frame: str = ""  # top application frame of the last error
    route: str | None = None  # dead-letter mailbox it was also sent to
    retry_wish: bool | None = None  # the producer asked for replay on failure
    original: Message | None = None  # what died, if it was edited since

    @property
    def id(self) -> str:
        return self.head.id

    @property
    def as_it_died(self) -> Message:
        """The message before any edit."""
        return self.original or self.message

    def story(self) -> list[Attempt]:
        """Return all attempts, first to last."""
        return read(self.history)


class GroupStatus(StrEnum):
    """The states of a group."""

    NEW = "new"  # no decision yet
    ONGOING = "ongoing"  # somebody is working on it
    SNOOZED = "snoozed"  # not listed until its time is over; then ongoing
    RESOLVED = "resolved"  # fixed, from some version on
    REGRESSED = "regressed"  # failed again after it was resolved
    MUTED = "muted"  # not listed until its status changes


class Standing(Struct, frozen=True, kw_only=True):
    """The last decision about a group, by a person or by a new death (`regressed`)."""

    status: GroupStatus = GroupStatus.NEW
    since: datetime | None = None  # when it was decided
    owner: str | None = None
    note: str = ""
    until: datetime | None = None  # of a snooze
    version: str = ""  # resolved from this version on; empty: at once


class Group(Struct, frozen=True, kw_only=True):
    """Dead letters with the same fingerprint."""

    fingerprint: str
    source: str
    error_type: str
    text: str  # the error text of the latest letter
    frame: str = ""
    trouble: Trouble = Trouble.UNKNOWN
    code: str = ""
    first_seen: datetime
    last_seen: datetime
    counts: dict[State, int]
    total: int  # deaths ever counted, also of letters since purged
    standing: Standing = Standing()

    @property
    def open(self) -> int:
        """The number of letters in open states."""
        return still_open(self.counts)


class By(Struct, frozen=True):
    """The actor of a change and the reason, as recorded in the audit."""

    actor: str
    reason: str = ""
    principal: str = ""  # see `core.access.Pass`


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One entry of the append-only audit chain; `hash` covers it and `previous`."""

    seq: int
    at: datetime
    actor: str
    action: str  # move, note, replay, purge, expire, restore, import …
    target: str  # a letter, group, queue or campaign
    reason: str = ""
    detail: str = ""
    previous: str = ""
    hash: str = ""


EDITABLE: Final = ("body", "headers", "content_type", "key")
"""The fields of a message that may be edited; the others identify the message."""


class Changes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a message; fields that are not given stay as they are."""

    body: bytes | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    content_type: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET

    def made_to(self, message: Message) -> Message:
        """Return the message with these changes; reject invalid texts."""
        given = {name: value for name in EDITABLE if (value := getattr(self, name)) is not UNSET}
        blank = Message(id="", body=b"", sent_at=message.sent_at)
        checked(replace(blank, **given))
        return replace(message, **given)


class Edit(Struct, frozen=True):
    """A new message for a letter, based on the revision that the editor saw."""

    id: str
    message: Message
    revision: int
    by: By


def check_revision(head: LetterHead, revision: int) -> None:
    """Reject edits of letters that are not open, or changed since the editor saw them."""
    if head.state not in OPEN:
        raise Conflict(
            f"letter {head.id} is {head.state}: only open letters can be edited; reopen it first"
        )
    if head.revision != revision:
        raise Conflict(
            f"letter {head.id} is at revision {head.revision}, not {revision}: it has"
            " changed meanwhile; load it again"
        )


def is_edit(before: Message, after: Message) -> bool:
    """Return whether two messages differ only in editable fields."""
    return replace(before, **{name: getattr(after, name) for name in EDITABLE}) == after


def edited(head: LetterHead, before: Message, after: Message) -> tuple[LetterHead, str]:
    """
    Return the head of a letter after an edit, and the audit's description of it.

    The description names the changed fields, never their contents.
    """
    changed = [name for name in EDITABLE if getattr(before, name) != getattr(after, name)]
    if not is_edit(before, after):
        raise ConfigError(
            "only the body, headers, content type and key of a letter's message can be"
            " edited: leave the rest as it is"
        )
    if not changed:
        raise ConfigError("the edit changes nothing: change the body, headers, content type or key")
    size = len(after.body)
    new = replace(head, key=after.key, size=size, revision=head.revision + 1)
    told = [name.replace("_", " ") for name in changed]
    if "body" in changed:
        told[0] += f" ({len(before.body)} to {size} bytes)"
    return new, ", ".join(told)


def no_letter(id: str) -> NotFound:
    """Return the error for a letter that does not exist."""
    return NotFound(f"there is no letter {id[:40]}")
