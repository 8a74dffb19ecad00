"""
Verbs of letters: what a person can do with them, each described once.

`VERBS` is the table. Routes, commands, the description of the API and tables of the
documentation are made from it. A new verb is an entry here and a method of `LetterVerbs`;
a verb that does not move letters also has a `change`.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from deadletter.core.access import Role
from deadletter.core.errors import ConfigError
from deadletter.core.letter import AuditEntry, By, State
from deadletter.ports import LetterStore

Change: TypeAlias = Callable[[LetterStore, Sequence[str], By], Awaitable[Sequence[str]]]
"""A change of letters in a store; returns the ids of those that it changed."""


class Moved(Struct, frozen=True, kw_only=True):
    """The result of a change to several letters."""

    asked: int = 0
    moved: int = 0
    skipped: dict[str, int] = {}  # the number of letters left unchanged, by reason


class Verb(Struct, frozen=True, kw_only=True):
    """
    One thing that a person can do with letters.

    Either `new` is the state that letters get, or `change` is what happens to them.
    """

    name: str  # of the method, the command and the routes
    about: str  # sentences for help and documentation; lists show the first one
    done: str  # past participle, as in "3 letters discarded"
    old: frozenset[State]  # the states in which letters can be
    new: State | None = None
    change: Change | None = None
    role: Role = Role.OPERATOR  # the least role that may do it
    opposite: str = ""  # the name of the verb that undoes it
    reason: str = "Why"  # the meaning of its reason
    needs_reason: bool = False
    danger: str = ""  # what people confirm first; {} is replaced by "3 letters"
    late_outcome: str = ""  # if it takes letters that wait for an outcome: what a late one does
    takes_waiting_search: bool = False  # the search is:replaying includes such letters
    key: str = ""  # of its shortcut in lists of letters

    @property
    def line(self) -> str:
        """Return the first sentence about it."""
        return self.about.partition(". ")[0].removesuffix(".") + "."

    @property
    def help(self) -> str:
        """Return all sentences about it."""
        reason = " Requires a reason." if self.needs_reason else ""
        return f"{self.about} Takes letters that are {self.states}.{reason}"

    @property
    def states(self) -> str:
        """Return the states in which letters can be, in words."""
        others = [state for state in State if state not in self.old]
        if len(others) == 1:
            return f"not {others[0]}"
        *most, last = [state for state in State if state in self.old]
        return f"{', '.join(most)} or {last}" if most else last

    @property
    def takes_unconfirmed(self) -> bool:
        """Return whether it can include letters that wait for the outcome of a replay."""
        return bool(self.late_outcome)

    @property
    def needs_count(self) -> bool:
        """Return whether a search needs the expected number of letters."""
        return bool(self.danger)

    def check(self, by: By, *, unconfirmed: bool = False) -> None:
        """Raise ConfigError if a reason is missing, or if `unconfirmed` does not apply."""
        if self.needs_reason and not by.reason.strip():
            raise ConfigError(f"{self.name} requires a reason, got none: say why")
        if unconfirmed and not self.takes_unconfirmed:
            raise ConfigError(
                f"{self.name} never takes letters that wait for an outcome: leave out `unconfirmed`"
            )


async def _purge(store: LetterStore, ids: Sequence[str], by: By) -> Sequence[str]:
    return await store.purge(ids, by)


REVIEW: Final = Verb(
    name="review",
    about="Mark letters as reviewed.",
    done="reviewed",
    old=frozenset({State.PENDING}),
    new=State.REVIEWED,
    opposite="reopen",
    reason="What you found",
    key="w",
)
CLOSE: Final = Verb(
    name="close",
    about="Close letters.",
    done="closed",
    old=frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED, State.REPLAYED}),
    new=State.CLOSED,
    opposite="reopen",
    late_outcome="A letter whose copy fails later is reopened.",
    takes_waiting_search=True,
)
REOPEN: Final = Verb(
    name="reopen",
    about="Make letters pending again.",
    done="reopened",
    old=frozenset({State.REVIEWED, State.CLOSED, State.REPLAYED, State.QUARANTINED}),
    new=State.PENDING,
    late_outcome="A letter whose copy is handled later becomes replayed.",
)
DISCARD: Final = Verb(
    name="discard",
    about="Discard letters. They can be restored until they are purged.",
    done="discarded",
    old=frozenset({State.PENDING, State.REVIEWED, State.QUARANTINED}),
    new=State.DISCARDED,
    opposite="restore",
    danger="discard {}",
    late_outcome="A letter whose copy fails later is reopened.",
    key="d",
)
RESTORE: Final = Verb(
    name="restore",
    about="Restore discarded letters: they become pending again.",
    done="restored",
    old=frozenset({State.DISCARDED}),
    new=State.PENDING,
    opposite="discard",
)
PURGE: Final = Verb(
    name="purge",
    about="Delete letters permanently. The audit keeps the reason, not the content.",
    done="purged",
    old=frozenset(State) - {State.REPLAYING},
    change=_purge,
    role=Role.ADMIN,
    needs_reason=True,
    danger="delete {} permanently",
)

VERBS: Final = (REVIEW, CLOSE, REOPEN, DISCARD, RESTORE, PURGE)
"""All verbs, in the order of lists."""
BY_NAME: Final = {verb.name: verb for verb in VERBS}


def verb_of(entry: AuditEntry) -> Verb | None:
    """Return the verb that an audit entry of a letter records; None for other acts."""
    if entry.action != "move":
        return BY_NAME.get(entry.action)
    old, _, new = entry.detail.partition(" to ")
    moves = [verb for verb in VERBS if verb.new == new]
    return next((verb for verb in moves if old in verb.old), moves[0] if moves else None)


class LetterVerbs(Protocol):
    """
    The verbs as methods, for an office in this process and for one behind a server.

    They take the ids of letters, record `by` in the audit and return how many letters
    changed, and why the others did not.
    """

    async def act(
        self, verb: Verb, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """
        Do one of `VERBS` with letters.

        Args:
            verb: What to do.
            ids: Whole ids of letters.
            by: Who does it, and why.
            unconfirmed: Include letters that wait for the outcome of a replay, if the
                verb takes them. Their copies may still be handled. The replay stops
                waiting for them, but still records their outcomes.
        """

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        """Mark pending letters as reviewed."""
        return await self.act(REVIEW, ids, by)

    async def close(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Close letters; with `unconfirmed` also those that wait for a replay's outcome."""
        return await self.act(CLOSE, ids, by, unconfirmed=unconfirmed)

    async def reopen(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Make letters pending again; `unconfirmed` as in `close`."""
        return await self.act(REOPEN, ids, by, unconfirmed=unconfirmed)

    async def discard(self, ids: Iterable[str], by: By, *, unconfirmed: bool = False) -> Moved:
        """Discard letters, until `restore` or `purge`; `unconfirmed` as in `close`."""
        return await self.act(DISCARD, ids, by, unconfirmed=unconfirmed)

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        """Make discarded letters pending again."""
        return await self.act(RESTORE, ids, by)

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        """Delete letters permanently. Requires a reason in `by`."""
        return await self.act(PURGE, ids, by)
