"""The office: where dead letters are kept, searched, grouped, reviewed."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from deadletter.core.audit import Examined
from deadletter.core.brake import KEPT, BrakeWindow
from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.grouping import GroupLimit, GroupRule, Regrouping
from deadletter.core.letter import (
    AuditEntry,
    By,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    Standing,
    State,
)
from deadletter.core.message import Message
from deadletter.core.query.ast import EVERYTHING, Node
from deadletter.core.query.search_step import Found, Meter, Step, Wanted
from deadletter.core.seals import Sealing
from deadletter.core.signing import Keys, keys_of

from .features import Features


class Kept(Struct, frozen=True, gc=False):
    """What became of one letter that was to be kept."""

    id: str
    is_new: bool = True
    conflict: bool = False  # kept apart: its message id was reused


class Page(Struct, frozen=True):
    """
    Some of what a search found, newest first.

    `after` continues it. A search looks at a bounded number of letters at a
    time, so a page may be short or empty and still have more behind it: then
    `looked_at` letters of `letters` were looked at, those that died since `back_to`.
    """

    heads: tuple[LetterHead, ...]
    after: str | None = None
    looked_at: int = 0
    back_to: datetime | None = None  # None: there is nothing older
    letters: int | None = None  # None where the page is full, or nothing is behind it


class Names(Struct, frozen=True):
    """The ids of what a search found, newest first; `after` continues it."""

    ids: tuple[str, ...]
    after: str | None = None


class Move(Struct, frozen=True, kw_only=True):
    """A change of review state: only letters in one of `old` move."""

    ids: tuple[str, ...]
    old: frozenset[State]
    new: State


class ReplayNext(Struct, frozen=True, gc=False):
    """A letter whose turn comes next: what the ledger can be asked about it."""

    letter_id: str
    source: str  # the mailbox it died in
    name: str  # its business key, or the id of its message
    replays: int


class KeyProgress(Struct, frozen=True):
    """How far the keys of a campaign have come."""

    behind: int = 0  # letters that wait behind one that went already
    sizes: tuple[int, ...] = ()  # of the next planned letters, with those behind each


class ReplayTaken(Struct, frozen=True, gc=False):
    """A letter claimed for sending: what its copy is made of, and no more."""

    letter_id: str
    source: str  # the mailbox it died in
    message: Message
    generation: int  # goes with the copy


class ReplaySettled(Struct, frozen=True):
    """What a consumer made of a replayed copy."""

    letter_id: str
    generation: int
    outcome: Outcome
    why: str = ""  # it was refused


def given_up(letters: Iterable[tuple[str, State, int]]) -> tuple[ReplaySettled, ...]:
    """Copies nobody waits for, of moved letters: ids, old states and generations."""
    return tuple(
        ReplaySettled(id_, generation, Outcome.UNCONFIRMED)
        for id_, old, generation in letters
        if old is State.REPLAYING
    )


class ReplayItems(Struct, frozen=True):
    """Some of a campaign's letters, in the order they go; `after` continues it."""

    items: tuple[ReplayItem, ...]
    after: int | None = None


class Resealed(Struct, frozen=True):
    """How far letters were sealed anew; `after` continues it."""

    sealed: int = 0
    after: str | None = None


class LetterStore(Protocol):
    """Where dead letters are kept, searched, grouped, reviewed: the office."""

    features: Features
    group_limit: GroupLimit

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """
        Keep letters durably, one transaction for all.

        Those that would make more groups than `group_limit` allows go into an
        overflow group.

        Keeping one again appends what is new of its attempts, and reopens it if
        it had been replayed or closed. Another body under the same identity is
        kept apart, marked as a conflict.
        """

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""

    async def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""

    async def groups(
        self,
        *,
        source: str | None = None,
        only_open: bool = True,
        statuses: frozenset[GroupStatus] | None = None,
        named: str = "",
        largest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Group]:
        """
        Groups of like failures, latest first, or those with most open letters.

        `statuses` are those to have, as they stand now; `named` is the beginning
        of their fingerprints. `after`, a `core.paging.group_cursor`, reads on behind
        that group: what does not move meanwhile comes once, and what moves to the
        front of that is to be found there.
        """

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """
        Say how a group stands, audited.

        A resolved group that a later letter dies of becomes `regressed` when that
        letter is kept, see `core.grouping`.
        """

    async def regroup(self, moves: Sequence[Regrouping], by: By) -> int:
        """
        Move letters to other groups, audited; how many moved.

        What was said of their groups moves along, see `core.regrouping`. A group whose
        last letter leaves is gone, unless there are rules about it.
        """

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""

    async def set_group_rules(
        self, fingerprint: str, rules: Sequence[GroupRule], by: By, detail: str
    ) -> None:
        """
        Say where letters of a group belong from now on, audited with this `detail`.

        Letters are put there when they are kept.
        """

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; the ids of those that moved."""

    async def note(self, ids: Sequence[str], text: str, by: By) -> Sequence[str]:
        """Write a note on letters; the ids of those that exist."""

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        """
        Put another message into a letter, audited; its new revision.

        Only the body, headers, content type and key may differ from what is there.
        The message that died is kept aside for good. A letter at another revision,
        or not open, is a Conflict; none of that id NotFound.
        """

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters for good, counted and audited; the ids of those gone."""

    async def expire(self, *, before: dict[State, datetime], by: By, limit: int = 1000) -> int:
        """Delete up to `limit` letters of finished states that died before then."""

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Write an act on something other than a letter into the audit."""

    async def verify(self) -> Sequence[str]:
        """What does not add up in here, one sentence each; nothing when all is well."""

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """
        Start a campaign over these letters, or add them to it; audited.

        They go oldest first, see `core.replay_rules`. With `key_order` the letters
        of one key and mailbox wait for each other: the next one may go once the one
        before it is confirmed or skipped. If it fails or is past the cap, those
        behind it are held.
        """

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of letters that exist, each once, oldest sent first."""

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""

    async def next_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayNext]:
        """Return the next planned letters of a running campaign, claiming nothing."""

    async def take_replay(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Sequence[ReplayTaken]:
        """
        Claim the next letters of a running campaign: they are `replaying` now.

        Letters that were taken but never reported as sent come first, with the
        generation they had; then those that may go after another of their key; then
        up to `keys` others. Letters past the cap are quarantined and skipped.

        Given `leave_out`, these are skipped, and no more than `limit` letters are
        gone through: those that `next_replay` named, and no others.
        """

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """The broker has the copies of these letters."""

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """
        Record what became of replayed copies, or that nobody waits for them.

        `SETTLED_FROM` and `landing` of `core.replay_rules` say what that changes.
        """

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """
        Every part these letters had in campaigns, also where they were skipped.

        Letters come in the order asked for, what happened to one in the order of
        its campaigns.
        """

    async def waiting_since(self) -> dict[str, datetime]:
        """
        Return when the copy was taken that each source has waited for longest.

        Of letters that are `replaying`; how many there are is in `counts`.
        """

    async def campaign_items(
        self, campaign: str, *, after: int = 0, limit: int = 100
    ) -> ReplayItems:
        """
        What became of a campaign's letters, in the order they go.

        Letters that were purged since are left out, so a page may be short and
        still have more behind it.
        """

    async def campaigns(
        self,
        *,
        limit: int = 20,
        begins: str = "",
        only: CampaignState | None = None,
        owner: str | None = None,
        after: str | None = None,
    ) -> Sequence[Campaign]:
        """
        Campaigns with their counts, latest first.

        Those whose id begins like this, those in `only` this state, and those that
        the principal `owner` planned, however many came after them. `after`, the id
        of such a one, reads on behind it; any other is a QueryError.
        """

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """
        Pause, resume, cancel or end a campaign.

        One that begins to run runs as the principal of `by` from then on.
        """

    async def save_window(self, window: BrakeWindow, *, keep: int = KEPT) -> BrakeWindow:
        """
        Write down how a brake's window stands, new or again.

        Return it with its release, which only `release_windows` writes. The latest
        `keep` windows are kept, the others deleted.
        """

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release a mailbox's windows that are not closed, audited; how many."""

    async def signing_key(self, new: bytes) -> bytes:
        """
        Return the key that all processes of this office sign with.

        The first to ask makes it: `new` is kept when there is none yet.
        """


@runtime_checkable
class Naming(Protocol):
    """
    An office that can name letters without reading them.

    Choosing many letters to do something with is then much cheaper; elsewhere
    their heads are read for it.
    """

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids alone."""


@runtime_checkable
class Indexing(Protocol):
    """An office that indexes texts after letters are kept, not while."""

    async def index_texts(self) -> bool:
        """
        Index some texts, or tidy up behind some; whether there is more.

        Any number of processes may do so at once: each text is indexed by one.
        """


@runtime_checkable
class BodyIndexing(Indexing, Protocol):
    """An office that can index bodies as well as error texts."""

    async def index_bodies(self, size: int) -> None:
        """
        Index bodies of up to `size` bytes from now on, 0 for none.

        What `index_texts` has to do for it begins anew when that changes. The office
        remembers it for all its processes.
        """


@runtime_checkable
class Examining(Protocol):
    """An office whose letters and audit carry seals."""

    @property
    def sealing(self) -> Sealing:
        """What letters and the audit are sealed with."""

    async def examine(self) -> Examined:
        """Examine everything that is kept: what was found, what could not be seen."""

    async def reseal(self, after: str = "") -> Resealed:
        """
        Seal some letters behind `after` that have no seal, or not by the first key.

        What a letter is then is taken for what it was; one that is not as it was sealed
        before is left as it is.
        """


# A step of a search where reading is awaited: judging never holds the event loop.

P = TypeVar("P")


async def run_step(
    step: Step[P], read: Callable[[Wanted[P]], Awaitable[Any]], meter: Meter, *, is_costly: bool
) -> Found[P]:
    """
    Run a step to its end; `read` reads what it wants.

    What a costly one has read is judged on a thread. The judging ends soon after the
    wait for it does.
    """
    given: Any = None
    try:
        while True:
            if is_costly:
                wanted = await asyncio.to_thread(_go_on, step, given)
            else:
                wanted = _go_on(step, given)
            if isinstance(wanted, Found):
                return wanted
            given = await read(wanted)
    finally:
        meter.stop()


def _go_on(step: Step[P], given: Any) -> Wanted[P] | Found[P]:
    try:
        return step.send(given)
    except StopIteration as end:
        found: Found[P] = end.value
        return found


PROCESS_KEYS: Final = Keys(os.urandom(32))
"""The keys of whoever was given none: good within this process, and nowhere else."""


class KeyRing:
    """The keys that an office signs with: those that were set, or else its own."""

    def __init__(self, letters: LetterStore, texts: Sequence[str] = ()) -> None:
        self._letters = letters
        self._keys = keys_of(texts)

    async def keys(self) -> Keys:
        """Return the keys; the office is asked once."""
        if self._keys is None:
            self._keys = Keys(await self._letters.signing_key(os.urandom(32)))
        return self._keys


class Seal:
    """The keys of an engine, which are handed to it once its office is open."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys = PROCESS_KEYS


@runtime_checkable
class Sealed(Protocol):
    """A broker that writes attempts into messages, and signs them."""

    seal: Seal
