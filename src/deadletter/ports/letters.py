"""The office: where dead letters are kept, searched, grouped, reviewed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from msgspec import Struct

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
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


class ReplayItems(Struct, frozen=True):
    """Some of a campaign's letters, in the order they go; `after` continues it."""

    items: tuple[ReplayItem, ...]
    after: int | None = None


class LetterStore(Protocol):
    """Where dead letters are kept, searched, grouped, reviewed: the office."""

    features: Features

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """
        Keep letters durably, one transaction for all.

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

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000
    ) -> int:
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
        """Start a campaign over these letters, or add them to it; audited."""

    async def take_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayTaken]:
        """
        Claim the next letters of a running campaign: they are `replaying` now.

        Letters that were taken but never reported as sent come first, with the
        generation they had. Letters past the cap are quarantined and skipped.
        """

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """The broker has the copies of these letters."""

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """What consumers made of replayed copies; late news of old ones is ignored."""

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """
        Every part these letters had in campaigns, also where they were skipped.

        Letters come in the order asked for, what happened to one in the order of
        its campaigns.
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
    """An office that indexes error texts after letters are kept, not while."""

    async def index_texts(self) -> bool:
        """Index some error texts, or tidy up behind some; whether there is more."""
