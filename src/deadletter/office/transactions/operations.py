"""The batch operations that a store of letters implements, and values they exchange."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from deadletter.core.audit import ItemSum, SealedLetter, Sums
from deadletter.core.brake import Release
from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.core.deaths import Counters
from deadletter.core.grouping import GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.letter_filing import Known
from deadletter.core.message import Message
from deadletter.core.query.versions import Seen
from deadletter.core.replay_rules import Candidate, Going, Interrupted
from deadletter.core.saved_search import SavedSearch
from deadletter.core.seals import Ends, ItemMoves, Sealing, Start
from deadletter.ports.letters import KeyProgress, ReplayItems, ReplayNext

T = TypeVar("T")

Shifts: TypeAlias = Counter[tuple[str, str, State]]
"""Changes of the number of letters, by source, fingerprint and state."""

Seals: TypeAlias = tuple[bytes, bytes, bytes | None]
"""The seals of a letter's message, its story and its original message."""


class Brief(Struct, frozen=True):
    """The part of a letter that counting and auditing need."""

    seq: int
    id: str
    source: str
    fingerprint: str
    state: State
    replays: int


class Revision(Struct, frozen=True):
    """Another message for a letter, with its head, digest and seal."""

    seq: int
    head: LetterHead
    message: Message
    digest: bytes
    rest: bytes
    seal: bytes


class FiledCounts(Struct, frozen=True):
    """The numbers that change when letters are filed."""

    new: Sequence[str]  # ids of letters
    shifts: Shifts
    groups: Sequence[Group]  # of the deaths, as these deaths alone show them
    versions: Seen  # of the applications that letters died in
    deaths: Counters  # over time


class CampaignPosition(Struct, frozen=True):
    """The position of a campaign."""

    seq: int
    id: str
    state: CampaignState
    cap: int
    actor: str
    runs_as: str
    items: int  # letters that were added and do not wait for their key
    keyed: bool  # letters wait for others of their key, or did
    taken: int  # the ordinal from which on items may still be planned
    free: int  # items before it were planned as such; later ones had waited
    to: str | None  # another mailbox than each letter's own

    @property
    def is_closed(self) -> bool:
        """Return whether letters that had waited were taken, so that none can be added."""
        return self.items != self.free


class CampaignFilter(Struct, frozen=True, kw_only=True):
    """Conditions of a list of campaigns."""

    limit: int
    begins: str = ""  # the id begins with it
    only: CampaignState | None = None
    owner: str | None = None
    after: str | None = None  # the id of the last one of the page before


class ReplayedCopy(Struct, frozen=True):
    """A copy of a letter that a campaign has sent."""

    letter: Brief
    generation: int
    campaign: int
    ordinal: int
    outcome: Outcome
    cap: int
    keyed: bool


class OfficeNumbers(Struct, frozen=True):
    """The counters and sums of a whole office."""

    kept: int
    sums: Sums
    ends: Ends  # where the audit ends; purged and expired letters


class Counts(Struct, frozen=True):
    """The numbers of letters: counted now, and as they are written down."""

    letters: Sequence[tuple[str, str, str, int]]  # by source, fingerprint and state
    by_source: Mapping[tuple[str, str], int]  # source and state
    by_group: Mapping[tuple[str, str], int]  # fingerprint and state, or "open"


class SealedLetters(Struct, frozen=True):
    """A batch of letters with their numbers and seals."""

    letters: Sequence[tuple[int, SealedLetter]]
    unreadable: Sequence[str] = ()  # ids of letters that could not be decoded
    after: str | None = None  # where to continue; None after the last letter


class LetterReads(Protocol):
    """Reads of a whole office, as it is at one moment."""

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""

    async def read_office(self) -> OfficeNumbers:
        """Return the counters and sums of the office."""

    async def read_counts(self) -> Counts:
        """Count all letters by source, group and state; return that and the stored counts."""

    async def find_oddities(self) -> list[str]:
        """Return sentences on damage that only this store can have."""

    def read_ids(self) -> AsyncIterator[str]:
        """Return the ids of all letters."""

    async def read_totals(self) -> dict[str, int]:
        """Return the deaths that each group counts."""

    async def read_campaigns(self) -> Sequence[tuple[int, str, Start]]:
        """Return the number, id and start of all campaigns."""

    async def read_item_sums(self) -> Sequence[ItemSum]:
        """Return the sums of all campaigns, by outcome."""

    def read_items(self) -> AsyncIterator[tuple[int, int, str]]:
        """Return all letters of campaigns: the numbers of both, and the outcome."""

    async def read_audit(self, *, target: str | None, after: int, limit: int) -> list[AuditEntry]:
        """Return entries of the audit behind `after`, of one target or all, oldest first."""

    async def find_sealed(self, after: str) -> SealedLetters:
        """Return some letters behind `after` with their seals, in a fixed order."""


class LetterOperations(LetterReads, Protocol):
    """
    Reads and writes of one store, inside one transaction.

    What is read stays as it is until the transaction ends.
    """

    # Filing

    async def find_known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Return the letters with these ids, each with the cap of its last campaign."""

    async def insert_letters(self, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
        """Write new letters with their contents; counts are the caller's."""

    async def rewrite_letters(self, letters: Sequence[Known]) -> None:
        """Write the heads and stories of letters that died again."""

    async def count_filed(self, counts: FiledCounts) -> Sequence[str]:
        """Count what was filed; return the names of those groups that are resolved."""

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""

    async def find_new_groups(
        self, groups: Mapping[str, str], day: int
    ) -> tuple[Sequence[str], Mapping[str, int]]:
        """
        Return which groups exist, and the number of groups made on a day by overflow group.

        Groups are given by name, each with the name of its overflow group.
        """

    async def add_new_groups(self, made: Mapping[str, int], day: int) -> None:
        """Add to the number of groups made on a day, by overflow group."""

    async def find_versions(
        self, names: Sequence[tuple[str, str]]
    ) -> Mapping[tuple[str, str], datetime]:
        """Return when versions, given by source and version, were first seen."""

    # Letters

    async def find_briefs(self, ids: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order."""

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time."""

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number."""

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters; counts are the caller's."""

    async def replace_message(self, revision: Revision) -> None:
        """Write another message into a letter; keep the message that died aside."""

    async def delete_letters(self, letters: Sequence[Brief]) -> None:
        """Delete letters with their contents."""

    async def count_deleted(self, letters: Sequence[Brief], action: str) -> None:
        """Count deleted letters for the office; the action is `purge` or `expire`."""

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change the number of letters by source, group and state."""

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Seal entries and write them at the end of the audit."""

    # Groups

    async def find_standings(self, names: Sequence[str]) -> dict[str, Standing]:
        """Return the standings of groups that exist."""

    async def set_standing(self, name: str, standing: Standing) -> None:
        """Write another standing of a group."""

    async def find_groups(self, names: Sequence[str], now: datetime) -> dict[str, Group]:
        """Return groups that exist, with their counts."""

    async def find_members(self, ids: Sequence[str], name: str) -> list[tuple[int, LetterHead]]:
        """Return the numbers and heads of those letters that are in a group."""

    async def move_members(self, letters: Sequence[tuple[int, LetterHead]], name: str) -> None:
        """Write another group into letters; counts are the caller's."""

    async def put_group(self, name: str, group: Group) -> None:
        """Write a group, new or again, without its counts by state."""

    async def shrink_group(self, name: str, deaths: int) -> None:
        """Subtract deaths from the total of a group."""

    async def delete_group(self, name: str) -> None:
        """Delete a group and its counts."""

    async def clear_empty_groups(self, letters: Sequence[Brief]) -> list[str]:
        """Delete texts of groups whose last letters these were; return their names."""

    async def count_deaths(self, deaths: Mapping[str, int]) -> None:
        """Add deaths by group to the sum that `verify` compares with."""

    async def rename_deaths(self, names: Mapping[str, str]) -> None:
        """Count the deaths over time of these groups for others, if the store counts them."""

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""

    # Saved searches

    async def find_searches(self) -> list[SavedSearch]:
        """Return all saved searches, by name; no other transaction changes them meanwhile."""

    async def put_search(self, search: SavedSearch) -> None:
        """Write a search, new or again."""

    async def delete_search(self, name: str) -> None:
        """Delete a search."""

    # Brake windows

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""

    # Campaigns

    async def find_campaign(self, id: str) -> CampaignPosition | None:
        """Return the position of a campaign."""

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""

    async def set_campaign(
        self, course: CampaignPosition, state: CampaignState, runs_as: str
    ) -> None:
        """Write another state of a campaign, and the principal that it runs as."""

    async def rewrite_campaign(self, course: CampaignPosition, campaign: Campaign) -> None:
        """Write the precautions, the plan and the approval of a campaign."""

    async def write_slices(self, course: CampaignPosition, slices: Mapping[int, str]) -> None:
        """Write slices of a kept plan by their place, new or again."""

    async def find_slices(self, course: CampaignPosition, first: int, limit: int) -> list[str]:
        """Return slices of a kept plan in order, from the place `first` on."""

    async def plan_items(
        self, course: CampaignPosition, campaign: Campaign, ids: Sequence[str]
    ) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return copies by letter id and generation; copies of others may be among them."""

    async def settle_items(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> None:
        """Write the outcome of items; counts are the caller's."""

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""

    async def count_items(self, moves: ItemMoves) -> None:
        """Change the number of items by outcome, and their sums."""

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Let letters go that wait for these letters by their key."""

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""

    # Replays

    async def find_sending(
        self, course: CampaignPosition, behind: int, limit: int
    ) -> list[Interrupted]:
        """Return items that are `sending`, by ordinal, from the one behind `behind` on."""

    async def find_plan(self, course: CampaignPosition, place: int, limit: int) -> Sequence[int]:
        """Return the ordinals of the next planned items, from `place` on."""

    async def free_items(self, course: CampaignPosition, limit: int) -> Sequence[int]:
        """Plan letters whose turn by key has come, counted; return their ordinals."""

    async def find_candidates(
        self, course: CampaignPosition, ordinals: Sequence[int], *, bodies: bool
    ) -> list[Candidate]:
        """Return the letters of items that were just found, in order; purged ones are missing."""

    async def find_messages(
        self, course: CampaignPosition, letters: Sequence[Candidate]
    ) -> list[Message]:
        """Return the messages of letters that were found with `bodies`."""

    async def take_items(
        self, course: CampaignPosition, going: Going, outcome: Outcome, now: datetime
    ) -> None:
        """Write that letters are out, with their next generation; counts are the caller's."""

    async def count_taken(self, shifts: Shifts, moves: ItemMoves) -> None:
        """Change the number of letters by state, and of items by outcome."""

    async def skip_items(
        self, course: CampaignPosition, ordinals: Sequence[int], before: Outcome, now: datetime
    ) -> list[int]:
        """Write that items are skipped; return the numbers of their letters."""

    async def advance(self, course: CampaignPosition, taken: int, sending: Sequence[int]) -> None:
        """
        Write how far a campaign has come, and end it if nothing is left to wait for.

        No item before `taken` is planned. Nothing is being sent before the first of `sending`.
        """

    async def mark_sent(
        self, campaign: str, ids: Sequence[str], now: datetime
    ) -> tuple[int, list[int]] | None:
        """
        Write that the broker has copies; return the numbers of the campaign and the letters.

        Returns None if there is no such campaign.
        """

    async def sent_order(self, ids: Sequence[str]) -> list[str]:
        """Return the ids of letters that exist, oldest sent first."""

    async def find_next(self, course: CampaignPosition, limit: int) -> list[ReplayNext]:
        """Return the next letters of a campaign, those whose turn by key has come first."""

    async def find_progress(self, course: CampaignPosition, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""

    async def find_items(
        self,
        course: CampaignPosition,
        after: int,
        limit: int,
        outcomes: frozenset[Outcome] | None = None,
    ) -> ReplayItems:
        """
        Return items of a campaign, in the order they go.

        With `outcomes`, up to `limit` items that have one of these.
        """

    async def find_replays(self, ids: Sequence[str]) -> list[ReplayItem]:
        """Return every part that letters had in campaigns, each letter's first to last."""

    async def find_campaigns(self, wanted: CampaignFilter) -> list[Campaign]:
        """Return campaigns with their counts, latest first."""

    async def waiting_since(self) -> dict[str, datetime]:
        """Return when the copy was taken that each source has waited for longest."""

    # Seals

    async def write_sums(self, sums: Sums) -> None:
        """Write other sums of the office."""

    async def write_item_sums(self, sums: Sequence[ItemSum]) -> None:
        """Write other sums of campaigns: all of those that are made with an old key."""

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""


Transaction: TypeAlias = Callable[[LetterOperations], Coroutine[Any, Any, T]]


def run_now(transaction: Coroutine[Any, Any, T]) -> T:
    """
    Run a transaction whose operations never wait, and return its result.

    Raises RuntimeError if it waits for anything.
    """
    try:
        transaction.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    transaction.close()
    raise RuntimeError("a transaction waited for something: its operations must return at once")
