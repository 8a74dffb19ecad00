"""
Outcomes of copies sent to foreign consumers, which report nothing.

If the server can report the outcome of a copy, it is asked. Otherwise a copy that did not die
again within the time of its campaign is presumed handled. The rule is `concluded` in
`core.replay_rules`.

An interrupted sending leaves letters that may or may not have been sent. If the server can
report which of their copies arrived, it is asked first.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from deadletter.core.campaign import Campaign, Outcome, ReplayItem, Verdict
from deadletter.core.errors import BackendError
from deadletter.core.letter import By, DeadLetter, LetterHead
from deadletter.core.message import Lineage
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import pattern
from deadletter.core.replay_rules import (
    SETTLED_FROM,
    UNFINISHED,
    Arrival,
    CopyState,
    concluded,
    copied,
)
from deadletter.core.signing import Keys, is_lineage_signed
from deadletter.core.text import many
from deadletter.ports import (
    Clock,
    CopyFinder,
    CopyTrace,
    KeyRing,
    LetterStore,
    OutcomeProbe,
    Outlet,
    ReplaySettled,
    SentCopy,
    WaysBack,
)

from .batches import batched
from .letter_search import of_sources
from .letters import Letters

_NAMED: Final = 50  # messages in one search, which must not be too long
_ITEMS: Final = 500  # of a campaign, in one look
_OFTEN: Final = 1.0  # seconds between two looks at all copies, at least
_SPARE: Final = 60.0  # seconds
_LATEST: Final = 1_000  # campaigns
ITSELF: Final = "deadletter"  # who acts where nobody was asked
RESENT: Final = "replay"  # the audit's word for what is said of a whole replay
_SHARE: Final = 10  # a look may take this part of the time


class Route(Struct, frozen=True):
    """The target of one campaign's letters, and the source of their outcomes."""

    outlet: Outlet
    is_foreign: bool = False
    outcomes: "ForeignOutcomes | None" = None
    interrupted: "Interrupted | None" = None

    def patience(self, campaign: Campaign, given: float) -> float:
        """Return the seconds to wait for an outcome, enough for one to be presumed."""
        presume = campaign.care.presume_after if self.is_foreign else None
        return given if not presume else max(given, 1.2 * presume + _SPARE)

    async def look(self, campaign: Campaign) -> None:
        """Look for outcomes of copies that nobody reports."""
        if self.outcomes is not None:
            await self.outcomes.look(campaign)

    async def settle_interrupted(self, campaign: Campaign) -> None:
        """Find out which copies of an interrupted sending arrived, if possible."""
        if self.interrupted is not None:
            await self.interrupted.settle(campaign)


@asynccontextmanager
async def open_route(
    campaign: Campaign,
    home: Outlet,
    ways: WaysBack | None,
    store: LetterStore,
    clock: Clock,
    *,
    ring: KeyRing,
) -> AsyncIterator[Route]:
    """Open the route of a campaign: to our own mailboxes, or to a foreign server."""
    if not campaign.through or ways is None:
        yield Route(home)
        return
    new_ids = campaign.care.sends(Verdict.ID_IN_USE)
    async with ways.open(campaign.through, new_ids=new_ids) as way:
        outcomes = ForeignOutcomes(store, clock, way.probe)
        finder = way.finder
        asks = None if finder is None else Interrupted(store, clock, finder, ring)
        yield Route(way, is_foreign=True, outcomes=outcomes, interrupted=asks)


async def settle_all(
    store: LetterStore,
    clock: Clock,
    ways: WaysBack,
    *,
    probes: Mapping[str, OutcomeProbe | None] | None = None,
) -> int:
    """
    Settle copies of all campaigns that went to foreign servers; return the number.

    A server that does not answer is asked the next time, and nothing is presumed until then.
    `probes` are those that are open already, by name.
    """
    settled, probes = 0, probes or {}
    for campaign in await store.campaigns(limit=_LATEST):
        if not needs_look(campaign):
            continue
        name = ways.way_of(campaign.through)
        if name is None or name in probes:
            probe = None if name is None else probes[name]
            settled += await ForeignOutcomes(store, clock, probe).look(campaign)
            continue
        with suppress(BackendError):
            async with ways.open(campaign.through) as way:
                outcomes = ForeignOutcomes(store, clock, way.probe)
                settled += await outcomes.look(campaign)
    return settled


class ForeignOutcomes:
    """Settles the copies of one campaign, at bounded cost."""

    def __init__(self, store: LetterStore, clock: Clock, probe: OutcomeProbe | None = None) -> None:
        self._store = store
        self._clock = clock
        self._probe = probe
        self._next_at = 0.0
        self._first = 0  # all items before it have an outcome

    async def look(self, campaign: Campaign) -> int:
        """Settle copies whose outcome is known or presumed by now; return the number."""
        began = self._clock.monotonic()
        if not needs_look(campaign) or began < self._next_at:
            return 0
        settled = 0
        after: int | None = self._first
        is_first_open = True
        while after is not None:
            page = await self._store.campaign_items(campaign.id, after=after, limit=_ITEMS)
            news = await self._news(campaign, page.items)
            if news:
                await self._store.settle_replays(news)
            settled += len(news)
            done = {one.letter_id for one in news}
            is_first_open = is_first_open and all(
                one.outcome not in UNFINISHED or one.letter_id in done for one in page.items
            )
            after = page.after
            if is_first_open and after is not None:
                self._first = after
            if all(one.outcome is Outcome.PLANNED for one in page.items):
                break  # nothing behind them was sent
        took = self._clock.monotonic() - began
        presume = campaign.care.presume_after or _OFTEN
        self._next_at = began + max(min(_OFTEN, presume / 4), _SHARE * took)
        return settled

    async def _news(self, campaign: Campaign, items: Sequence[ReplayItem]) -> list[ReplaySettled]:
        now = self._clock.now()
        sent = [
            (one, one.sent_at)
            for one in items
            if one.outcome is Outcome.SENT and one.sent_at is not None
        ]
        if not sent:
            return []
        states = await self._states(campaign, sent)
        news: list[ReplaySettled] = []
        for (one, sent_at), state in zip(sent, states, strict=True):
            outcome = concluded(state, sent_at, now, campaign.care.presume_after)
            if outcome is not None:
                news.append(ReplaySettled(one.letter_id, one.generation, outcome))
        return news

    async def _states(
        self, campaign: Campaign, sent: Sequence[tuple[ReplayItem, datetime]]
    ) -> Sequence[CopyState]:
        if self._probe is None:
            return [CopyState.UNKNOWN] * len(sent)
        ids = [one.letter_id for one, _ in sent]
        copies = await _copies(self._store, campaign, sent)
        found = dict(
            zip(
                (one.letter_id for one in copies),
                await self._probe.look(copies) if copies else (),
                strict=True,
            )
        )
        return [found.get(id_, CopyState.UNKNOWN) for id_ in ids]


def _is_signed(copy: SentCopy, trace: CopyTrace, campaign: Campaign, keys: Keys) -> bool:
    """Return whether the arrived copy is one that we made."""
    lineage = Lineage(
        letter_id=copy.letter_id,
        generation=copy.generation,
        campaign=campaign.id,
        signature=trace.signature,
    )
    made = structs.replace(copy.message, lineage=lineage)
    return is_lineage_signed(made, copy.mailbox, keys)


async def _copies(
    store: LetterStore, campaign: Campaign, sent: Sequence[tuple[ReplayItem, datetime]]
) -> list[SentCopy]:
    """Return the copies of items with existing letters, and the times they were sent."""
    ids = [one.letter_id for one, _ in sent]
    letters = {one.id: one for one in await store.get(ids)}
    return [
        _sent_copy(campaign, one, sent_at, letters[one.letter_id])
        for one, sent_at in sent
        if one.letter_id in letters
    ]


def _sent_copy(
    campaign: Campaign, item: ReplayItem, sent_at: datetime, letter: DeadLetter
) -> SentCopy:
    lineage = Lineage(letter_id=item.letter_id, generation=item.generation, campaign=campaign.id)
    return SentCopy(
        letter_id=item.letter_id,
        generation=item.generation,
        mailbox=campaign.to or letter.head.source,
        message=copied(letter.message, lineage, sent_at),
        # A worker may be done with a copy before its sending is written down.
        sent_at=item.taken_at or sent_at,
    )


class Interrupted:
    """
    Settles letters whose sending was interrupted, before it continues.

    Copies that arrived count as sent. Missing ones are sent again under the same generation. If
    the arrival is unknown, a note on the letter or the reason for its reopening says so.
    """

    def __init__(self, store: LetterStore, clock: Clock, finder: CopyFinder, ring: KeyRing) -> None:
        self._store = store
        self._letters = Letters(store, clock)
        self._finder = finder
        self._ring = ring

    async def settle(self, campaign: Campaign) -> None:
        """Settle every letter of a campaign that is `sending`."""
        left = campaign.counts.get(Outcome.SENDING, 0)
        after: int | None = 0
        while left > 0 and after is not None:
            page = await self._store.campaign_items(campaign.id, after=after, limit=_ITEMS)
            after = page.after
            sending = [
                (one, one.taken_at or campaign.created_at)
                for one in page.items
                if one.outcome is Outcome.SENDING
            ]
            left -= len(sending)
            copies = await _copies(self._store, campaign, sending)
            if copies:
                await self._settle(campaign, copies, await self._finder.find(copies))

    async def _settle(
        self, campaign: Campaign, copies: list[SentCopy], traces: Sequence[CopyTrace]
    ) -> None:
        keys = await self._ring.keys()
        by_trace: defaultdict[tuple[Arrival, str], list[str]] = defaultdict(list)
        for copy, trace in zip(copies, traces, strict=True):
            arrival = trace.arrival
            if arrival is Arrival.ARRIVED and not _is_signed(copy, trace, campaign, keys):
                arrival = Arrival.MISSING  # somebody else wrote that
            by_trace[arrival, trace.why].append(copy.letter_id)
        for (arrival, reason), ids in by_trace.items():
            match arrival:
                case Arrival.ARRIVED:
                    await self._store.sent_replay(campaign.id, ids)
                case Arrival.LOST:
                    why = f"nobody can tell whether its copy was sent: {reason}"
                    await self._letters.reopen(ids, By(ITSELF, why), unconfirmed=True)
                case Arrival.UNKNOWABLE:
                    await self._tell_doubles(campaign, ids, reason)
                case Arrival.MISSING:
                    pass

    async def _tell_doubles(self, campaign: Campaign, ids: Sequence[str], why: str) -> None:
        by = By(ITSELF, why)
        text = f"Its sending was interrupted: replay {campaign.id} may send it twice"
        await self._letters.note(ids, text, by)
        sent = many(len(ids), "letter is", "letters are")
        detail = f"{sent} sent again after an interruption and may arrive twice"
        await self._store.record(RESENT, campaign.id, by, detail)


def needs_look(campaign: Campaign) -> bool:
    """Return whether copies of a campaign went to foreign servers and have no outcome yet."""
    return bool(campaign.through and campaign.counts.get(Outcome.SENT))


class Confirmed(Struct, frozen=True):
    """The result of confirming messages."""

    confirmed: int = 0  # letters whose copy was waited for, or presumed handled
    unknown: tuple[str, ...] = ()  # ids of messages that no letter waits for


async def confirm_messages(
    store: LetterStore, message_ids: Sequence[str], by: By, *, sources: Sequence[str] = ()
) -> Confirmed:
    """
    Record that consumers have handled messages that were sent back to them.

    With `sources`, only letters of these mailboxes. A message that no letter waits for changes
    nothing and is returned as unknown.
    """
    wanted = tuple(dict.fromkeys(message_ids))
    heads: list[LetterHead] = []
    for some in batched(wanted, _NAMED):
        heads += await _sent_back(store, some, sources)
    items = await store.replays([head.id for head in heads])
    waiting = {
        (one.letter_id, one.generation)
        for one in items
        if one.outcome in SETTLED_FROM[Outcome.CONFIRMED]
    }
    found = [head for head in heads if (head.id, head.replays) in waiting]
    if found:
        await store.settle_replays(
            [ReplaySettled(one.id, one.replays, Outcome.CONFIRMED) for one in found]
        )
    for head in found:
        await store.record("confirm", head.id, by, f"message {head.message_id}")
    known = {head.message_id for head in found}
    unknown = tuple(id_ for id_ in wanted if id_ not in known)
    return Confirmed(len(found), unknown)


async def _sent_back(
    store: LetterStore, message_ids: Sequence[str], sources: Sequence[str]
) -> list[LetterHead]:
    names = tuple(pattern((id_,)) for id_ in message_ids)
    named = of_sources(Term("message", Op.IS, names), sources)
    heads: list[LetterHead] = []
    after: str | None = None
    while True:
        page = await store.find(named, limit=_ITEMS, after=after)
        heads += [head for head in page.heads if head.replays]
        after = page.after
        if after is None:
            return heads
