"""The office in a MongoDB database: one for any number of nodes."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

from msgspec.structs import replace

from deadletter.core.brake_window import KEPT, BrakeWindow
from deadletter.core.campaign import Campaign, CampaignState, ReplayItem
from deadletter.core.editing import Edit
from deadletter.core.examination import Examined
from deadletter.core.group_limit import GroupLimit
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
    brake_windows,
    campaigns,
    groups,
    key_order,
    regrouping,
    search,
    versions,
)
from . import letters_documents as documents
from . import letters_edit as editing
from . import letters_keep as keeping
from . import letters_moves as moves
from . import letters_replay as replay
from . import letters_verify as verifying
from .database import Database, limit_for
from .turn import Turn

_VERIFYING: Final = 3_600.0  # seconds that looking at everything may take
_SLICE: Final = 2_000  # letters to a turn, so that nobody waits long for the next


class MongodbLetters:
    """Where dead letters are kept, searched, grouped, reviewed: one database."""

    def __init__(self, db: Database, *, clock: Clock, features: Features) -> None:
        self.features = features
        self.group_limit = GroupLimit()
        self._db = db
        self._clock = clock

    async def keep(self, letters: Sequence[DeadLetter]) -> Sequence[Kept]:
        """Keep letters durably, all of them or none."""
        if not letters:
            return []
        now = self._clock.now()
        size = sum(len(letter.message.body) for letter in letters)
        return await self._db.write(
            lambda turn: keeping.keep(turn, letters, now, self.group_limit),
            within=limit_for(size),
        )

    async def get(self, ids: Sequence[str]) -> Sequence[DeadLetter]:
        """Whole letters, in the order asked for; those that exist."""
        return await self._db.read(partial(documents.get, ids=ids))

    async def find(
        self, query: Node = EVERYTHING, *, limit: int = 50, after: str | None = None
    ) -> Page:
        """Search, newest death first."""
        asked = await self._asked(query, limit, after)
        return await self._db.search(partial(search.find, asked=asked))

    async def find_ids(
        self, query: Node = EVERYTHING, *, limit: int, after: str | None = None
    ) -> Names:
        """Search like `find`, for ids alone."""
        asked = await self._asked(query, limit, after)
        return await self._db.search(partial(search.find_ids, asked=asked))

    async def _asked(self, query: Node, limit: int, after: str | None) -> search.Asked:
        if compares_versions(query):
            look = partial(versions.all_seen, most=MOST_VERSIONS + 1)
            query = with_versions(query, await self._db.search(look))
        meter = Meter(self._clock.monotonic)
        return search.Asked(query, limit, after, self._clock.now(), meter)

    async def counts(self) -> dict[str, dict[State, int]]:
        """How many letters of each state, by source."""
        return await self._db.read(groups.counts)

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
        return await self._db.read(partial(groups.groups, asked=asked))

    async def set_group(self, fingerprint: str, standing: Standing, by: By) -> None:
        """Say how a group stands, audited."""
        check_standing(standing)
        now = self._clock.now()
        await self._db.write(
            lambda turn: groups.say(turn, fingerprint, standing, by, now)
        )

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

        async def work(turn: Turn) -> None:
            await regrouping.set_rules(turn, fingerprint, rules)
            turn.act("regroup-rule", fingerprint, by, at=at, detail=detail)

        await self._db.write(work)

    async def move(self, move: Move, by: By) -> Sequence[str]:
        """Move letters between states, audited; the ids of those that moved."""
        now = self._clock.now()
        moved: list[str] = []
        for ids in _slices(move.ids):
            some = replace(move, ids=ids)
            moved += await self._db.write(
                partial(replay.move, move=some, by=by, now=now)
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
        return await self._db.write(lambda turn: editing.edit(turn, edit, now))

    async def original(self, id: str) -> Message | None:
        """The message that died, if the letter's has been edited since."""
        found = await self._db.read(partial(documents.originals, ids=[id]))
        return found.get(id)

    async def purge(self, ids: Sequence[str], by: By) -> Sequence[str]:
        """Delete letters for good, counted and audited; the ids of those gone."""
        now = self._clock.now()
        return await self._db.write(lambda turn: moves.purge(turn, ids, by, now))

    async def expire(
        self, *, before: dict[State, datetime], by: By, limit: int = 1000
    ) -> int:
        """Delete up to `limit` letters of finished states that died before then."""
        check_expiry(before)
        now = self._clock.now()
        return await self._db.write(
            lambda turn: moves.expire(turn, before, by, limit, now)
        )

    async def audit(
        self, *, target: str | None = None, after: int = 0, limit: int = 100
    ) -> Sequence[AuditEntry]:
        """The audit, oldest first, from the entry behind `after`."""
        return await self._db.read(
            partial(audit.page, target=target, after=after, limit=limit)
        )

    async def record(self, action: str, target: str, by: By, detail: str = "") -> None:
        """Write an act on something other than a letter into the audit."""
        now = self._clock.now()

        async def work(turn: Turn) -> None:
            turn.act(action, target, by, at=now, detail=detail)

        await self._db.write(work)

    async def verify(self) -> Sequence[str]:
        """What does not add up in here, one sentence each; nothing when all is well."""
        return list((await self.examine()).findings)

    @property
    def sealing(self) -> Sealing:
        """What letters and the audit are sealed with."""
        return self._db.sealing

    async def examine(self) -> Examined:
        """Examine everything that is kept: what was found, what could not be seen."""
        survey = partial(verifying.survey, sealing=self.sealing)
        examination = await self._db.read(survey, within=_VERIFYING)
        after: str | None = ""
        while after is not None:
            look = partial(verifying.letters, after=after)
            after, found = await self._db.read(look, within=_VERIFYING)
            for _, letter in found:
                examination.add(letter)
        return examination.result()

    async def reseal(self, after: str = "") -> Resealed:
        """Seal some letters that have no seal, or not by the first key."""
        return await self._db.write(partial(verifying.reseal, after=after))

    async def plan_replay(self, campaign: Campaign, ids: Sequence[str]) -> None:
        """Start a campaign over these letters, or add them to it; audited."""
        now = self._clock.now()
        for some in _slices(ids) or [()]:
            await self._db.write(
                partial(campaigns.plan, campaign=campaign, letters=some, now=now)
            )

    async def sent_order(self, ids: Sequence[str]) -> Sequence[str]:
        """Return the ids of letters that exist, oldest sent first."""
        return await self._db.read(
            lambda there, session: campaigns.sent_order(there, session, ids)
        )

    async def next_replay(self, campaign: str, *, limit: int) -> Sequence[ReplayNext]:
        """Return the next planned letters of a running campaign, claiming nothing."""
        return await self._db.read(
            lambda there, session: replay.upcoming(there, session, campaign, limit)
        )

    async def key_progress(self, campaign: str, *, limit: int) -> KeyProgress:
        """Return how far keys have come, and the sizes of the next `limit` ones."""
        return await self._db.read(
            lambda there, session: key_order.progress(there, session, campaign, limit)
        )

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
        return await self._db.write(
            lambda turn: replay.take_next(turn, campaign, limit, leave_out, keys, now)
        )

    async def sent_replay(self, campaign: str, ids: Sequence[str]) -> None:
        """The broker has the copies of these letters."""
        now = self._clock.now()
        await self._db.write(lambda turn: replay.sent(turn, campaign, ids, now))

    async def settle_replays(self, outcomes: Sequence[ReplaySettled]) -> None:
        """What consumers made of replayed copies; late news of old ones is ignored."""
        check_news(one.outcome for one in outcomes)
        if outcomes:
            now = self._clock.now()
            await self._db.write(lambda turn: replay.settle(turn, outcomes, now))

    async def campaign_items(
        self, campaign: str, *, after: int = 0, limit: int = 100
    ) -> ReplayItems:
        """What became of a campaign's letters, in the order they go."""
        return await self._db.read(
            partial(campaigns.items, campaign=campaign, after=after, limit=limit)
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
            partial(
                campaigns.latest,
                limit=limit,
                begins=begins,
                only=only,
                owner=owner,
                after=after,
            )
        )

    async def waiting_since(self) -> dict[str, datetime]:
        """When the copy was taken that each source has waited for longest."""
        return await self._db.read(campaigns.waiting_since)

    async def replays(self, ids: Sequence[str]) -> Sequence[ReplayItem]:
        """Every part these letters had in campaigns, each letter's first to last."""
        return await self._db.read(partial(campaigns.replays, letters=ids))

    async def set_campaign(self, campaign: str, state: CampaignState, by: By) -> None:
        """Pause, resume, cancel or end a campaign."""
        now = self._clock.now()
        await self._db.write(
            lambda turn: campaigns.change(turn, campaign, state, by, now)
        )

    async def save_window(
        self, window: BrakeWindow, *, keep: int = KEPT
    ) -> BrakeWindow:
        """Write down how a brake's window stands; return it with its release."""
        return await self._db.plainly(
            lambda there: brake_windows.save(there, window, keep)
        )

    async def windows(
        self, *, mailbox: str | None = None, limit: int = 100
    ) -> Sequence[BrakeWindow]:
        """Windows of all mailboxes or one, the latest opening first."""
        return await self._db.plainly(
            lambda there: brake_windows.latest(there, mailbox, limit)
        )

    async def release_windows(self, mailbox: str, by: By) -> int:
        """Release a mailbox's windows that are not closed, audited; how many."""
        now = self._clock.now()
        return await self._db.write(
            lambda turn: brake_windows.release(turn, mailbox, by, now)
        )

    async def signing_key(self, new: bytes) -> bytes:
        """Return the key that all processes of this office sign with."""

        async def work(turn: Turn) -> bytes:
            return bytes(turn.numbers.setdefault("signing_key", new))

        return await self._db.write(work)


def _slices(ids: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(ids[i : i + _SLICE]) for i in range(0, len(ids), _SLICE)]
