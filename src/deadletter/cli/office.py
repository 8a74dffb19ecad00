"""
What commands ask of an office, wherever it is.

`local.LocalOffice` does it with an engine that is opened here, `remote.RemoteOffice`
asks a server. No command knows which of the two it has.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, BinaryIO, Protocol

from msgspec import Struct

from deadletter.core.campaign import Campaign
from deadletter.core.care import AT_ONCE, Care
from deadletter.core.editing import Changes
from deadletter.core.letter import AuditEntry, By, GroupStatus, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.query.ast import Node
from deadletter.core.unsettled import Unsettled
from deadletter.core.variants import Variants
from deadletter.office.campaigns import ReplayPage
from deadletter.office.choosing import Chosen
from deadletter.office.group_merging import Regrouped, RuleLine
from deadletter.office.groups import GroupLine, GroupPage
from deadletter.office.letters import LetterCount, Moved
from deadletter.office.outages import Outage, Released
from deadletter.office.outcomes import Confirmed
from deadletter.office.preflight import LetterVerdict, Plan
from deadletter.office.replay import CAP
from deadletter.office.stats import Stats
from deadletter.office.story import Moment
from deadletter.office.taking_in import TakenIn
from deadletter.office.view import LetterView
from deadletter.office.watch import PATIENCE
from deadletter.ports import Page, QueueInfo, QueueOptions, ReplayItems


class Looked(Struct, frozen=True, kw_only=True):
    """A letter as somebody sees it; its messages whole only when they are revealed."""

    view: LetterView
    moments: tuple[Moment, ...]
    left_out: bool = False  # there are more acts than are told here
    message: Message | None = None
    original: Message | None = None


class Wish(Struct, frozen=True, kw_only=True):
    """Letters that somebody wants to send back, and how."""

    chosen: Chosen
    by: By
    limit: int | None = None  # letters that are sent
    to: str | None = None
    cap: int = CAP
    rate: float | None = None
    care: Care = AT_ONCE
    through: str | None = None  # a server of others; None: the one they came from


class SomeLetters(Protocol):
    """The letters of an office: found, moved along, put away."""

    async def search(
        self, query: str = "", *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Up to `limit` letters, newest death first."""

    def select(
        self, query: str, *, limit: int | None = None
    ) -> AsyncIterator[tuple[LetterHead, ...]]:
        """Everything a search finds, page by page."""

    async def freeze(self, query: str | Node, *, limit: int | None = None) -> list[str]:
        """The ids a search finds now."""

    async def count(self, query: str = "") -> LetterCount:
        """How many letters a search finds, as far as it is cheap to know."""

    async def head(self, text: str) -> LetterHead:
        """What a list shows of one letter, by its id or the beginning of it."""

    async def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""

    async def review(self, ids: Iterable[str], by: By) -> Moved:
        """Somebody has looked at these."""

    async def close(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """These are done with."""

    async def reopen(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """These need somebody again."""

    async def discard(
        self, ids: Iterable[str], by: By, *, unconfirmed: bool = False
    ) -> Moved:
        """Throw these away."""

    async def restore(self, ids: Iterable[str], by: By) -> Moved:
        """Take these out of the bin."""

    async def note(self, ids: Iterable[str], text: str, by: By) -> Moved:
        """Write a note on these."""

    async def purge(self, ids: Iterable[str], by: By) -> Moved:
        """Delete these for good."""


class SomeReplays(Protocol):
    """The replays of an office."""

    async def run(
        self,
        campaign_id: str,
        *,
        rate: float | None = None,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[int], None] | None = None,
        on_wait: Callable[[int], None] | None = None,
        patience: float = PATIENCE,
    ) -> Campaign:
        """See to it that what is left of a campaign is sent, or `stop` is set."""

    async def status(self, campaign_id: str) -> Campaign:
        """A campaign and its counts."""

    async def page(self, *, limit: int = 20, after: str | None = None) -> ReplayPage:
        """Campaigns with their counts, latest first."""

    async def pause(self, campaign_id: str, by: By) -> Campaign:
        """Stop sending for now."""

    async def cancel(self, campaign_id: str, by: By) -> Campaign:
        """Send no more of it."""

    async def wait_confirmed(
        self,
        campaign_id: str,
        *,
        timeout: float,  # noqa: ASYNC109 -- running out of it is an answer, not an error
        stop: asyncio.Event | None = None,
        on_look: Callable[[Campaign], None] | None = None,
    ) -> Campaign:
        """Wait until every copy sent has an outcome, or `timeout` seconds are over."""


class Office(Protocol):
    """An office, here or behind a server."""

    @property
    def letters(self) -> SomeLetters:
        """Its letters."""

    @property
    def replay(self) -> SomeReplays:
        """Its replays."""

    async def look(
        self, text: str, by: By, *, reveal: bool = False, capture: bool = False
    ) -> Looked:
        """One letter and its story; what is masked is shown if asked for, audited."""

    async def message(
        self, text: str, by: By, *, original: bool = False, shown: bool = True
    ) -> tuple[LetterHead, Message]:
        """
        A letter's message, every byte of it; audited.

        Unless it is `shown` to somebody, only who hands it out over a network says so.
        """

    async def edit(self, head: LetterHead, changes: Changes, by: By) -> LetterHead:
        """Change a letter's message, if it is still as it was seen."""

    async def plan(self, wish: Wish) -> Plan:
        """What a replay would do: a verdict for each letter, and the sums."""

    def verdicts(self, wish: Wish) -> AsyncIterator[Sequence[LetterVerdict]]:
        """What to expect of each letter, some at a time."""

    async def begin(self, wish: Wish, *, hold: bool = False) -> Campaign:
        """Record a campaign over these letters; with `hold` it is only planned."""

    async def resume(
        self,
        campaign_id: str,
        by: By,
        *,
        rate: float | None = None,
        take_over: bool = False,
    ) -> Campaign:
        """Let sending go on, at another `rate` if it may be."""

    async def outcomes(self, campaign_id: str, *, after: int = 0) -> ReplayItems:
        """What became of some of a campaign's letters, in the order they go."""

    async def confirm(self, message_ids: Sequence[str], by: By) -> Confirmed:
        """Say that consumers have handled messages that were sent back to them."""

    async def groups(
        self,
        *,
        source: str | None = None,
        status: GroupStatus | None = None,
        everything: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> GroupPage:
        """Groups of like failures, those with most open letters first."""

    async def group(self, name: str) -> GroupLine:
        """One group, by its name or the beginning of it."""

    async def variants(self, name: str) -> Variants:
        """What the letters of a group have in common, and in what they differ."""

    async def say(
        self,
        name: str,
        status: GroupStatus,
        by: By,
        *,
        owner: str | None = None,
        until: datetime | None = None,
        version: str = "",
    ) -> GroupLine:
        """Say how a group stands."""

    async def merge_groups(self, into: str, others: Sequence[str], by: By) -> Regrouped:
        """Merge groups into one; letters to come follow."""

    async def split_group(self, name: str, query: str, by: By) -> Regrouped:
        """Make letters that a search finds a group of their own."""

    async def undo_grouping(self, name: str, by: By) -> Regrouped:
        """Take back the last merge or split of a group."""

    async def group_rules(self) -> Sequence[RuleLine]:
        """Merges and splits that letters to come follow."""

    async def regroup(self, by: By) -> int:
        """Move letters of older fingerprints to their groups; how many moved."""

    async def audit(self, target: str, *, limit: int) -> Sequence[AuditEntry]:
        """What was done to something, oldest first."""

    async def acts(self, after: int, limit: int) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""

    async def stats(self) -> Stats:
        """Everything that can be counted cheaply."""

    async def waiting(self) -> Sequence[Unsettled]:
        """Letters that wait for the outcome of a replay, by source."""

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""

    async def queue(self, name: str) -> QueueInfo:
        """One mailbox and what is in it."""

    async def outages(
        self, *, mailbox: str | None = None, only_open: bool = False, limit: int = 50
    ) -> Sequence[Outage]:
        """Times that mailboxes were held back by the brake, the latest first."""

    async def release(self, mailbox: str, by: By) -> Released:
        """Tell a mailbox's workers to go on."""

    async def create_queue(self, options: QueueOptions, by: By) -> None:
        """Make a mailbox."""

    async def update_queue(
        self, name: str, changes: dict[str, Any], by: By
    ) -> QueueOptions:
        """Change some of a mailbox's options."""

    async def delete_queue(self, name: str, by: By, *, force: bool = False) -> int:
        """Delete a mailbox; how many messages went with it."""

    async def export(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write whole letters into a file, audited under its name; how many."""

    async def sheet(
        self, query: str, file: BinaryIO, by: By, *, limit: int | None, name: str
    ) -> int:
        """Write the heads of letters as CSV, audited under its name; how many."""

    async def take_in(
        self, file: BinaryIO, by: By, *, name: str, salvage: bool = False
    ) -> TakenIn:
        """Take in an archive, or with `salvage` the intact letters of a damaged one."""
