"""The dead letter, its states, and which moves between them are allowed."""

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

    PENDING = "pending"  # nobody has looked at it yet
    REVIEWED = "reviewed"  # somebody has
    REPLAYING = "replaying"  # sent back, outcome not known yet
    REPLAYED = "replayed"  # sent back, seen and settled by its consumer
    CLOSED = "closed"  # done with
    QUARANTINED = "quarantined"  # replayed too often: for people only
    DISCARDED = "discarded"  # thrown away; can be restored until purged


OPEN: Final = frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED})
"""States in which somebody still has to do something."""


def still_open(counts: Mapping[State, int]) -> int:
    """Of letters counted by state, those that still need somebody."""
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


def sources_of(target: State) -> frozenset[State]:
    """The states from which a letter may move to `target`."""
    return frozenset(state for state, targets in MOVES.items() if target in targets)


class LetterHead(Struct, frozen=True, kw_only=True, gc=False):
    """
    The fields of a letter that lists show: everything but its contents.

    Heads are small, so that a million of them can be searched.
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
    attempts: int = 1  # 0: nobody knows, its source does not say
    first_failed_at: datetime
    dead_at: datetime  # of the latest death, if it was replayed and died again
    consumer: str = ""  # handler, node or stage that gave up on it
    version: str = ""  # of the application that gave up on it
    trace_id: str | None = None
    replays: int = 0
    conflict: bool = False  # its message id was reused with another body
    size: int = 0
    revision: int = 0  # grows with every change

    @property
    def category(self) -> ErrorCategory:
        """Return whether trying again was worth it."""
        return self.trouble.category

    @property
    def error_name(self) -> str:
        """The error's type without its module."""
        return error_name(self.error_type)


def error_name(error_type: str) -> str:
    """The type of an error without its module."""
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
        """The message before anybody edited it."""
        return self.original or self.message

    def story(self) -> list[Attempt]:
        """All attempts, first to last."""
        return read(self.history)


class GroupStatus(StrEnum):
    """The states of a group."""

    NEW = "new"  # nobody has said anything about it yet
    ONGOING = "ongoing"  # somebody knows
    SNOOZED = "snoozed"  # not listed until its time is over, then ongoing
    RESOLVED = "resolved"  # should not happen again, from some version on
    REGRESSED = "regressed"  # it happened again nevertheless
    MUTED = "muted"  # not listed until somebody says otherwise


class Standing(Struct, frozen=True, kw_only=True):
    """The last decision about a group, by a person or by a new death (`regressed`)."""

    status: GroupStatus = GroupStatus.NEW
    since: datetime | None = None  # when it was said
    owner: str | None = None
    note: str = ""
    until: datetime | None = None  # of a snooze
    version: str = ""  # resolved from this one on; empty is at once


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
        """Letters in it that still need somebody."""
        return still_open(self.counts)


class By(Struct, frozen=True):
    """The actor of a change and the reason, as recorded in the audit."""

    actor: str
    reason: str = ""
    principal: str = ""  # of one who was let in; see `core.access.Pass`


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One act, in an append-only chain: `hash` covers this entry and `previous`."""

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
        """The message with these changes made to it; new texts are checked."""
        given = {name: value for name in EDITABLE if (value := getattr(self, name)) is not UNSET}
        blank = Message(id="", body=b"", sent_at=message.sent_at)
        checked(replace(blank, **given))
        return replace(message, **given)


class Edit(Struct, frozen=True):
    """Another message for a letter, by somebody who has seen it at a revision."""

    id: str
    message: Message
    revision: int
    by: By


def check_revision(head: LetterHead, revision: int) -> None:
    """Refuse to edit a letter that is not open, or not as its editor has seen it."""
    if head.state not in OPEN:
        raise Conflict(
            f"letter {head.id} is {head.state}: only open letters can be edited; reopen it first"
        )
    if head.revision != revision:
        raise Conflict(
            f"letter {head.id} is at revision {head.revision}, not {revision}: it has"
            " changed meanwhile; look again"
        )


def is_edit(before: Message, after: Message) -> bool:
    """Return whether two messages differ only where a message may be edited."""
    return replace(before, **{name: getattr(after, name) for name in EDITABLE}) == after


def edited(head: LetterHead, before: Message, after: Message) -> tuple[LetterHead, str]:
    """
    The head of a letter whose message becomes another, and what the audit says.

    The audit says what was changed, and nothing of the contents.
    """
    changed = [name for name in EDITABLE if getattr(before, name) != getattr(after, name)]
    if not is_edit(before, after):
        raise ConfigError(
            "only the body, headers, content type and key of a letter's message can be"
            " edited: leave the rest as it is"
        )
    if not changed:
        raise ConfigError("the message is as it was: there is nothing to edit")
    size = len(after.body)
    new = replace(head, key=after.key, size=size, revision=head.revision + 1)
    told = [name.replace("_", " ") for name in changed]
    if "body" in changed:
        told[0] += f" ({len(before.body)} to {size} bytes)"
    return new, ", ".join(told)


def no_letter(id: str) -> NotFound:
    """Return what is raised when there is no letter to edit."""
    return NotFound(f"there is no letter {id[:40]}")
