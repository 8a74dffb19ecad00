"""The office in a PostgreSQL database: one for any number of nodes."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from deadletter.core.audit import act
from deadletter.core.brake_window import KEPT, BrakeWindow
from deadletter.core.campaign import Campaign, CampaignState, ReplayItem
from deadletter.core.editing import Edit
from deadletter.core.escaping import stored
from deadletter.core.examination import Examined
from deadletter.core.grouping import Asked, check_standing
from deadletter.core.keeping import check_expiry
from deadletter.core.letter import (
    AuditEntry,
    By,
    DeadLetter,
    Group,
    GroupStatus,
    Standing,
    State,
)
from deadletter.core.message import Message
from deadletter.core.query import (
    EVERYTHING,
    MOST_VERSIONS,
    Meter,
    Node,
    compares_versions,
    with_versions,
)
from deadletter.core.regrouping import GroupRule, Regrouping
from deadletter.core.replaying import check_news
from deadletter.core.seals import Sealing
from deadletter.ports.features import Features
from deadletter.ports.letters import (
    Kept,
    KeyProgress,
    Move,
    Names,
    Page,
    ReplayItems,
    ReplayNext,
    ReplaySettled,
    ReplayTaken,
    Resealed,
)
from deadletter.ports.time import Clock

from . import (
    audit,
    body_index,
    brake_windows,
    campaigns,
    counting,
    groups,
    key_order,
    plans,
    regrouping,
    replay_items,
    search,
    signing,
    text_index,
    versions,
)
from . import letters_edit as editing
from . import letters_moves as moves
from . import letters_replay as replay
from . import letters_verify as verifying
from .database import Database, limit_for
from .letters_keep import keeping
from .pool import LONGEST, Connection

T = TypeVar("T")

_SLICE: Final = 10_000  # ids to a transaction, so that nobody waits long for rows


class PostgresqlLetters:
    """Where dead letters are kept, searched, grouped, reviewed: one database."""

    def __init__(self, db: Database, *, clock: Clock, features: Features) -> None:
        self.features = features
        self.group_limit = db.group_limit
        self._db = db
        self._clock = clock
        # Where letters that we have taken stand in their campaigns: found the faster
        # when they are sent. Whatever is not in here is looked up.
        self._out: dict[tuple[str, str], int] = {}

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """Keep letters durably, all of them or none."""
        if not letters:
            return []
        size = sum(len(letter.message.body) for letter in letters)
        keep = keeping(letters, self._clock.now(), self.group_limit)
        return await self._db.write(keep, within=limit_for(size))

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        asked = [stored(id_) for id_ in ids]
        rows = await self._db.fetch(editing.GET, asked, within=LONGEST)
        by_id = {letter.id: letter for letter in map(editing.with_original, rows)}
        return [by_id[id_] for id_ in ids if id_ in by_id]

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        return await self._searched(search.find, query, limit, after)

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids alone."""
        return await self._searched(search.find_ids, query, limit, after)

    async def _searched(
        self,
        search: Callable[..., Awaitable[T]],
        query: Node,
        limit: int,
        after: str | None,
    ) -> T:
        now = self._clock.now()

        async def work(connection: Connection) -> T:
            # The time begins here: who waits for a connection has not used any.
            meter = Meter(self._clock.monotonic)
            asked = query
            if compares_versions(query):
                seen = await versions.all_seen(connection, MOST_VERSIONS + 1)
                asked = with_versions(query, seen)
            return await search(
                connection, asked, limit=limit, after=after, now=now, meter=meter
            )

        return await self._db.search(work)

    async def index_texts(self) -> bool:
        """Index some texts; whether there is more."""
        if await self._db.write(text_index.index_some):
            return True
        return await self._db.write(body_index.index_some) > 0

    async def index_bodies(self, size: int) -> None:
        """Index bodies of up to `size` bytes from now on, 0 for none."""
        await self._db.write(lambda c: body_index.index_up_to(c, size))

    async def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""
        return await self._db.read(counting.counts)

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
        """Groups of like failures, latest or largest first."""
        asked = Asked(
            source=source,
            only_open=only_open,
            statuses=statuses,
            named=named,
            largest_first=largest_first,
            after=after,
            limit=limit,
            now=self._clock.now(),
        )
        return await self._db.read(lambda c: groups.groups(c, asked))

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """Say how a group stands, audited."""
        check_standing(standing)
        now = self._clock.now()
        await self._db.write(lambda c: groups.say(c, fingerprint, standing, by, now))

    async def regroup(self, moves: Sequence[Regrouping], by: By) -> int:
        """Move letters to other groups, audited; how many moved."""
        now = self._clock.now()
        return sum(
            [
                await self._db.write(
                    partial(regrouping.regroup, move=move, by=by, now=now)
                )
                for move in moves
            ]
        )

    async def group_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided, by group."""
        return await self._db.read(regrouping.rules)

    async def set_group_rules(
        self, fingerprint: str, rules: Sequence[GroupRule], by: By, detail: str
    ) -> None:
        """Say where letters of a group belong from now on, audited."""
        at = self._clock.now()
        entry = act("regroup-rule", fingerprint, by, at=at, detail=detail)
        await self._db.write(
            lambda c: regrouping.set_rules(c, fingerprint, rules, entry)
        )

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; the ids of those that moved."""
        now = self._clock.now()
        moved: list[str] = []
        for some in _slices(move.ids):
            part = replace(move, ids=some)
            moved += await self._db.write(
                partial(replay.move, move=part, by=by, now=now)
            )
        return moved

    async def note(self, ids: Sequence[str], text: str, by: By) -> Sequence[str]:
        """Write a note on letters; the ids of those that exist."""
        now = self._clock.now()
        noted: list[str] = []
        for some in _slices(ids):
            noted += await self._db.write(
                partial(moves.note, letters=some, text=text, by=by, now=now)
            )
        return noted

    async def edit(self, id: str, message: Message, *, revision: int, by: By) -> int:
        """Put another message into a letter, audited; its new revision."""
        now = self._clock.now()
        edit = Edit(id, message, revision, by)
        return await self._db.write(lambda c: editing.edit(c, edit, now))

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        (letter,) = await self.get([id]) or (None,)
        return None if letter is None else letter.original

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters for good, counted and audited; the ids of those gone."""
        now = self._clock.now()
        return await self._db.write(lambda c: moves.purge(c, ids, by, now))

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000
    ) -> int:
        """Delete up to `limit` letters of finished states that died before then."""
        check_expiry(before)
        now = self._clock.now()
        return await self._db.write(lambda c: moves.expire(c, before, by, limit, now))

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        return await self._db.read(
            lambda c: audit.page(c, target=target, after=after, limit=limit)
        )

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Write an act on something other than a letter into the audit."""
        entry = act(action, target, by, at=self._clock.now(), detail=detail)
        await self._db.write(lambda c: audit.append(c, [entry]))

    @property
    def sealing(self) -> Sealing:
        """What letters and the audit are sealed with."""
        return self._db.sealing

    async def examine(self) -> Examined:
        """Examine everything that is kept here."""
        return await self._db.read(verifying.examine, within=verifying.LONG)

    async def reseal(self, after: str = "") -> Resealed:
        """Seal some letters that have no seal, or not by the first key."""
        return await self._db.write(lambda c: verifying.reseal(c, after))

    async def verify(self) -> Sequence[str]:
        """What does not add up in here, one sentence each; nothing when all is well."""
        return list((await self.examine()).findings)

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """Start a campaign over these letters, or add them to it; audited."""
        now = self._clock.now()
        for some in _slices(ids) or [()]:
            await self._db.write(
                partial(campaigns.plan, campaign=campaign, letters=some, now=now)
            )

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return await self._db.read(lambda c: plans.sent_order(c, ids))

    async def next_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayNext]:
        """Return the next planned letters of a running campaign, claiming nothing."""
        return await self._db.read(lambda c: replay.next_planned(c, campaign, limit))

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        return await self._db.read(lambda c: key_order.progress(c, campaign, limit))

    async def take_replay(
        self,
        campaign: str,
        *,
        limit: int,
        leave_out: frozenset[str] | None = None,
        keys: int | None = None,
    ) -> Sequence[ReplayTaken]:
        """Claim the next letters of a running campaign: they are `replaying` now."""
        now = self._clock.now()
        taken = await self._db.write(
            lambda c: replay.take_next(c, campaign, limit, leave_out, keys, now)
        )
        if len(self._out) > _SLICE:  # of campaigns that were given up
            self._out.clear()
        self._out |= {
            (campaign, one.letter_id): ordinal for ordinal, one in taken.items()
        }
        return list(taken.values())

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """The broker has the copies of these letters."""
        now = self._clock.now()
        places = {id_: self._out.pop((campaign, id_), None) for id_ in ids}
        ordinals = [place for place in places.values() if place is not None]
        others = [id_ for id_, place in places.items() if place is None]
        # Should the server break down at this moment, it is as if we had not been
        # told yet, which may happen anyway.
        await self._db.write(
            lambda c: replay.sent(c, campaign, others, ordinals, now), durable=False
        )

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """What consumers made of replayed copies; late news of old ones is ignored."""
        check_news(one.outcome for one in outcomes)
        if outcomes:
            now = self._clock.now()
            await self._db.write(lambda c: replay.settle(c, outcomes, now))

    async def campaign_items(
        self, campaign: str, *, after: int = 0, limit: int = 100
    ) -> ReplayItems:
        """What became of a campaign's letters, in the order they go."""
        return await self._db.read(
            lambda c: replay_items.of_campaign(c, campaign, after, limit)
        )

    async def campaigns(
        self,
        *,
        limit: int = 20,
        begins: str = "",
        only: CampaignState | None = None,
        owner: str | None = None,
        after: str | None = None,
    ) -> Sequence[Campaign]:
        """Campaigns with their counts, latest first."""
        return await self._db.read(
            lambda c: campaigns.latest(
                c, limit=limit, begins=begins, only=only, owner=owner, after=after
            )
        )

    async def waiting_since(self) -> dict[str, datetime]:
        """When the copy was taken that each source has waited for longest."""
        return await self._db.read(replay_items.waiting_since)

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """Every part these letters had in campaigns, each letter's first to last."""
        return await self._db.read(lambda c: replay_items.items(c, ids))

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """Pause, resume, cancel or end a campaign."""
        now = self._clock.now()
        await self._db.write(lambda c: campaigns.change(c, campaign, state, by, now))

    async def save_window(
        self, window: BrakeWindow, *, keep: int = KEPT
    ) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        return await self._db.write(lambda c: brake_windows.save(c, window, keep))

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        return await self._db.read(lambda c: brake_windows.latest(c, mailbox, limit))

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release a mailbox's windows that are not closed, audited; how many."""
        now = self._clock.now()
        return await self._db.write(
            lambda c: brake_windows.release(c, mailbox, by, now)
        )

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that all processes of this office sign with."""
        kept = await self._db.read(signing.kept)
        if kept is None:
            return await self._db.write(lambda c: signing.keep(c, new))
        return kept


def _slices(ids: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(ids[i : i + _SLICE]) for i in range(0, len(ids), _SLICE)]
