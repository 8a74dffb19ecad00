"""The store of an office, where letters are kept, searched, grouped and reviewed."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from deadletter.core.audit import Examined
from deadletter.core.brake import KEPT, BrakeWindow
from deadletter.core.campaign import Campaign, CampaignState, Outcome, PlanSlice, ReplayItem
from deadletter.core.deaths import DeathCount, DeathFilter, FirstSeen, VersionDeaths
from deadletter.core.grouping import GroupLimit, GroupRule, Regrouping, StatusCount
from deadletter.core.letter import (
    AuditEntry,
    By,
    DeadLetter,
    Group,
    GroupStatus,
    LetterHead,
    ReviewOrder,
    Standing,
    State,
)
from deadletter.core.message import Message
from deadletter.core.presence import WorkerSeen, WorkerSign
from deadletter.core.query.ast import EVERYTHING, Node
from deadletter.core.query.search_step import Found, Meter, Step, Wanted
from deadletter.core.seals import Sealing
from deadletter.core.signing import Keys, keys_of

from .features import Features
from .searches import SearchStore


class Kept(Struct, frozen=True, gc=False):
    """The result of keeping one letter."""

    id: str
    is_new: bool = True
    conflict: bool = False  # kept apart: its message id was reused


class Page(Struct, frozen=True):
    """
    One page of a search, newest first.

    `after` continues it. A search looks at a bounded number of letters at a time, so a page may
    be short or empty although more follow. Then `looked_at` of `letters` letters were looked
    at, those that died since `back_to`.
    """

    heads: tuple[LetterHead, ...]
    after: str | None = None
    looked_at: int = 0
    back_to: datetime | None = None  # None: there is nothing older
    letters: int | None = None  # None if the page is full or the last one


class Names(Struct, frozen=True):
    """The ids that a search found, newest first; `after` continues it."""

    ids: tuple[str, ...]
    after: str | None = None


class Move(Struct, frozen=True, kw_only=True):
    """A change of review state: only letters in one of `old` move."""

    ids: tuple[str, ...]
    old: frozenset[State]
    new: State


class PlanChange(Struct, frozen=True, kw_only=True):
    """A change of a kept plan: the campaign with it, other slices, and letters to add."""

    campaign: Campaign  # only precautions, plan and approval are written
    slices: dict[int, PlanSlice] = {}  # by place
    add: tuple[str, ...] = ()  # ids of letters that the campaign sends
    by: By | None = None  # then it is audited, with `detail`
    detail: str = ""


class ReplayNext(Struct, frozen=True, gc=False):
    """A letter that is next in a campaign, with its key in the ledger."""

    letter_id: str
    source: str  # the mailbox it died in
    name: str  # its business key, or the id of its message
    replays: int


class KeyProgress(Struct, frozen=True):
    """The progress of a campaign's keys."""

    behind: int = 0  # letters that wait behind one that was sent
    sizes: tuple[int, ...] = ()  # of the next planned letters, with those behind each


class ReplayTaken(Struct, frozen=True, gc=False):
    """A letter claimed for sending, with the parts of its copy."""

    letter_id: str
    source: str  # the mailbox it died in
    message: Message
    generation: int  # goes with the copy


class ReplaySettled(Struct, frozen=True):
    """The outcome of a replayed copy."""

    letter_id: str
    generation: int
    outcome: Outcome
    why: str = ""  # it was refused


def given_up(letters: Iterable[tuple[str, State, int]]) -> tuple[ReplaySettled, ...]:
    """Return the copies of moved letters that nobody waits for: ids, old states, generations."""
    return tuple(
        ReplaySettled(id_, generation, Outcome.UNCONFIRMED)
        for id_, old, generation in letters
        if old is State.REPLAYING
    )


class ReplayItems(Struct, frozen=True):
    """A page of a campaign's letters, in sending order; `after` continues it."""

    items: tuple[ReplayItem, ...]
    after: int | None = None


class Resealed(Struct, frozen=True):
    """The progress of sealing letters anew; `after` continues."""

    sealed: int = 0
    after: str | None = None


class LetterStore(SearchStore, Protocol):
    """The store of an office: keep, search, group, review and replay letters."""

    features: Features
    group_limit: GroupLimit
    review_order: ReviewOrder

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """
        Keep letters durably, in one transaction.

        Letters that would make more groups than `group_limit` allows go into an overflow group.

        Keeping a letter again appends its new attempts, and reopens it if it was replayed or
        closed. Another body under the same identity is kept apart, marked as a conflict.
        """

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Return whole letters that exist, in the order of the ids."""

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""

    async def counts(self) -> dict[str, dict[State, int]]:
        """Return the number of letters in each state, by source."""

    async def groups(
        self,
        *,
        source: str | None = None,
        only_open: bool = True,
        statuses: frozenset[GroupStatus] | None = None,
        named: str = "",
        text: str = "",
        largest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Group]:
        """
        Return groups, latest first, or those with most open letters first.

        `statuses` are the current statuses to return; `named` is the beginning of fingerprints;
        `text` is part of the error, its place or code, or the owner, in upper or lower case.
        `after`, a `group_cursor`, continues behind that group: groups that do not change
        meanwhile come once, and groups that do move to the front.
        """

    async def group_counts(self, sources: Sequence[str] = ()) -> dict[GroupStatus, StatusCount]:
        """Count groups by their current status; with `sources`, only groups of these."""

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """
        Set the standing of a group, audited.

        A resolved group becomes `regressed` when a later letter dies of it, see
        `core.grouping`.
        """

    async def regroup(self, moves: Sequence[Regrouping], by: By) -> int:
        """
        Move letters to other groups, audited; return the number moved.

        The standing of their groups moves along, see `core.grouping`. A group without letters
        is deleted, unless rules name it.
        """

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""

    async def set_group_rules(
        self, fingerprint: str, rules: Sequence[GroupRule], by: By, detail: str
    ) -> None:
        """
        Set the rules of a group, audited with this `detail`.

        Letters follow them when they are kept.
        """

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; return the ids of those that moved."""

    async def note(self, ids: Sequence[str], text: str, by: By) -> Sequence[str]:
        """Add a note to letters; return the ids of those that exist."""

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        """
        Replace the message of a letter, audited; return its new revision.

        Only the body, headers, content type and key may differ. The message that died is kept.
        Raises Conflict if the letter is at another revision or not open, and NotFound if it
        does not exist.
        """

    async def original(self, id: str) -> Message | None:
        """Return the message that died, if it was edited since."""

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters permanently, counted and audited; return their ids."""

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000, unreviewed: bool = False
    ) -> int:
        """
        Delete up to `limit` letters that died before the time of their state, audited.

        Raises ConfigError for states that are not finished. `unreviewed` permits the open ones.
        """

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """Return audit entries after `after`, oldest first."""

    async def latest_audit(
        self,
        *,
        target: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[AuditEntry]:
        """Return audit entries with a number below `before`, newest first."""

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Add an audit entry about something other than a letter."""

    async def verify(self) -> Sequence[str]:
        """Return inconsistencies, one sentence each; none if all is well."""

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """
        Start a campaign over these letters, or add them to it; audited.

        Letters are sent oldest first, see `core.replay_rules`. With `key_order`, letters of one
        key and mailbox wait for each other: the next one may be sent once the one before it is
        confirmed or skipped. If one fails or is past the cap, those behind it are held.
        """

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of existing letters, each once, oldest sent first."""

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return the progress of keys, and the sizes of the next `limit` ones."""

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
        Claim the next letters of a running campaign: they become `replaying`.

        Letters that were taken but never reported as sent come first, with their generation;
        then those that may follow another of their key; then up to `keys` others. Letters past
        the cap are quarantined and skipped.

        With `leave_out`, these are skipped, and at most `limit` letters are visited: exactly
        those that `next_replay` returned.
        """

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """Record that the broker has the copies of these letters."""

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """
        Record outcomes of replayed copies, or that nobody waits for them.

        `SETTLED_FROM` and `landing` of `core.replay_rules` say what changes.
        """

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """
        Return all items of these letters in campaigns, also skipped ones.

        Letters come in the order of the ids, items of a letter in the order of its campaigns.
        """

    async def waiting_since(self) -> dict[str, datetime]:
        """
        Return for each source when its longest waiting copy was taken.

        Only of letters that are `replaying`; `counts` has their number.
        """

    async def campaign_items(
        self,
        campaign: str,
        *,
        after: int = 0,
        limit: int = 100,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """
        Return the items of a campaign, in sending order.

        With `outcomes`, only items that have one of these. Purged letters are left out, so a
        page may be short although more follow.
        """

    async def freeze_replay(self, campaign: Campaign, slices: Sequence[PlanSlice]) -> None:
        """
        Keep a campaign with a plan whose letters have yet to be judged; audited.

        Its letters are those of the slices, in sending order. It sends none of them before
        `change_plan` adds them.
        """

    async def plan_slices(self, campaign: str, *, first: int, limit: int) -> Sequence[PlanSlice]:
        """Return slices of a kept plan in order, from the place `first` on."""

    async def change_plan(self, seen: Campaign, change: PlanChange) -> bool:
        """
        Change the kept plan of a campaign, in one transaction.

        Returns False and changes nothing if plan or precautions are not as they were `seen`,
        or if the campaign has ended.
        """

    async def approve_replay(self, campaign: str, by: By) -> None:
        """
        Record the second person who agrees to a planned campaign; audited.

        Raises Conflict if the campaign is not planned, or was approved already.
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
        Return campaigns with their counts, latest first.

        Filters: ids that begin with a prefix, `only` one state, and campaigns that the
        principal `owner` planned. `after`, the id of such a campaign, continues behind it.
        Raises QueryError for any other id.
        """

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """
        Pause, resume, cancel or end a campaign.

        A campaign that starts to run runs as the principal of `by`.
        """

    async def save_window(self, window: BrakeWindow, *, keep: int = KEPT) -> BrakeWindow:
        """
        Store a brake's window, new or changed.

        Returns it with its release, which only `release_windows` writes. The latest `keep`
        windows are kept, the others deleted.
        """

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Return windows of all mailboxes or one, latest opening first."""

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release a mailbox's open windows, audited; return the number released."""

    async def signing_key(self, new: bytes) -> bytes:
        """
        Return the key that all processes of this office sign with.

        If there is none yet, `new` is stored as the key.
        """


@runtime_checkable
class Naming(Protocol):
    """
    A store that can return ids of letters without reading them.

    Selecting many letters is then much cheaper; other stores read their heads.
    """

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids only."""


@runtime_checkable
class DeathCounting(Protocol):
    """A store that counts deaths over time, in the transaction that files them."""

    async def deaths(self, request: DeathFilter) -> Sequence[DeathCount]:
        """Return deaths over time, earliest first; steps without deaths are left out."""

    async def deaths_by_version(self, groups: Sequence[str]) -> Sequence[VersionDeaths]:
        """Return the deaths of groups by version, the version with the latest death first."""

    async def tidy_deaths(self) -> bool:
        """
        Add up the oldest counters whose steps are due; return whether there may be more.

        Any number of processes may call this at once.
        """

    async def versions(
        self, since: datetime, until: datetime, *, limit: int = 1_000
    ) -> Sequence[FirstSeen]:
        """Return the versions that were first seen in a span, latest first."""


@runtime_checkable
class Presence(Protocol):
    """
    A store to which workers say that they live, and what they work.

    Nothing depends on it but what people see. Time is the clock of the store.
    """

    async def note_workers(self, signs: Sequence[WorkerSign]) -> None:
        """Write signs of life, one row for each worker; forget those silent for long."""

    async def workers_left(self, ids: Sequence[str]) -> None:
        """Forget workers that have ended."""

    async def workers(self) -> Sequence[WorkerSeen]:
        """Return the workers that are not forgotten, by name."""


@runtime_checkable
class Indexing(Protocol):
    """A store that indexes texts after letters are kept."""

    async def index_texts(self) -> bool:
        """
        Index some texts, or clean up; return whether there is more to do.

        Any number of processes may call this at once: each text is indexed by one.
        """


@runtime_checkable
class BodyIndexing(Indexing, Protocol):
    """A store that can index bodies as well as error texts."""

    async def index_bodies(self, size: int) -> None:
        """
        Index bodies of up to `size` bytes from now on; 0 for none.

        After a change, `index_texts` starts over. The setting is stored for all processes.
        """


@runtime_checkable
class Examining(Protocol):
    """A store whose letters and audit carry seals."""

    @property
    def sealing(self) -> Sealing:
        """Return the sealing of letters and the audit."""

    async def examine(self) -> Examined:
        """Examine everything; return the findings, and what could not be checked."""

    async def reseal(self, after: str = "") -> Resealed:
        """
        Seal some letters after `after` that have no seal, or not by the first key.

        The current content is taken as correct. A letter that does not match its seal is left
        as it is.
        """


# A search step for stores that await: judging never blocks the event loop.

P = TypeVar("P")


async def run_step(
    step: Step[P], read: Callable[[Wanted[P]], Awaitable[Any]], meter: Meter, *, is_costly: bool
) -> Found[P]:
    """
    Run a search step to its end; `read` reads what it requests.

    Costly judging runs on a thread, and ends soon after the caller stops waiting.
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
"""Keys that are valid only within this process, if no others are set."""


class KeyRing:
    """The signing keys of an office: those that were set, or else its own."""

    def __init__(self, letters: LetterStore, texts: Sequence[str] = ()) -> None:
        self._letters = letters
        self._keys = keys_of(texts)

    async def keys(self) -> Keys:
        """Return the keys; the office is asked once."""
        if self._keys is None:
            self._keys = Keys(await self._letters.signing_key(os.urandom(32)))
        return self._keys


class Seal:
    """The keys of an engine, which it gets once its office is open."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys = PROCESS_KEYS


@runtime_checkable
class Sealed(Protocol):
    """A broker that writes attempts into messages and signs them."""

    seal: Seal
