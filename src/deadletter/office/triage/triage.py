"""The questions that people ask while they look at dead letters, answered by an office."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from deadletter.core.access import Identity, Role
from deadletter.core.alerts import Alerts
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.errors import BackendError, QueryError
from deadletter.core.grouping import HIDDEN
from deadletter.core.letter import AuditEntry, By, Group, GroupStatus, LetterHead, State, still_open
from deadletter.core.query import parse, sealed
from deadletter.core.query.ast import EVERYTHING, All, Node, Op, Term
from deadletter.core.query.fields import instant
from deadletter.core.query.parse import show
from deadletter.office.approval import waits_for_approval
from deadletter.office.audit import AuditFilter, latest_entries
from deadletter.office.groups import list_groups
from deadletter.office.letter_search import of_sources
from deadletter.office.letters import Letters
from deadletter.office.mailboxes import list_outages
from deadletter.office.outcomes import ITSELF
from deadletter.office.searches import Searches
from deadletter.office.stats import waiting
from deadletter.office.view import reveal as record_reveal
from deadletter.ports import Broker, Clock, LetterStore, QueueInfo

from .attention import Need, Problem, Scene, rank_needs
from .common_values import CommonValues, group_common_values
from .completion import (
    LARGEST,
    OPENED,
    RECENT,
    Option,
    SearchValues,
    count_places,
    count_values,
    may_be_name,
    query_before,
    suggest,
)
from .facets import COUNTED, MOST_NEARBY, Facets, Nearby, count_facets, count_nearby, nearby_terms
from .layout import BodySlice, Form, layout
from .shift_report import LONGEST, ShiftReport, came, count_deeds, replay_line

T = TypeVar("T")


class TriageProtocol(Protocol):
    """Answers of an office about its letters: `Triage` here, or the same over HTTP."""

    async def facets(self, query: str = "") -> Facets:
        """Return the values of the newest letters that a search finds, by field."""

    async def nearby(self, text: str) -> Sequence[Nearby]:
        """
        Count the letters that share the key, trace, message id or group of a letter.

        Args:
            text: The id of the letter, or the beginning of it.
        """

    async def contents(
        self,
        text: str,
        by: By,
        *,
        start: int = 0,
        form: Form = Form.PRETTY,
        original: bool = False,
        reveal: bool = False,
    ) -> BodySlice:
        """
        Return a part of the body of a letter in lines; secrets are masked.

        Args:
            text: The id of the letter, or the beginning of it.
            by: Who looks at it.
            start: The byte to begin at: 0, or `after` of the part before.
            form: The form to show it in.
            original: Show the body that died, not as it was edited.
            reveal: Show what is masked. This is recorded in the audit.
        """

    async def common_values(self, name: str) -> CommonValues:
        """Return what the newest letters of a group have in common, and what varies."""

    async def suggest(self, text: str, at: int | None = None) -> Sequence[Option]:
        """
        Return completions of a search.

        Args:
            text: The search so far.
            at: The position of the cursor; None means the end.
        """

    async def needs(self) -> Sequence[Need]:
        """Return what needs somebody, the most urgent first."""

    async def report(self, since: datetime) -> ShiftReport:
        """Return what happened since a time, who did what, and what is open now."""


_KEPT_FOR: Final = 30.0  # seconds that values for completions are kept
_MOST_KEPT: Final = 100
_GROUPS: Final = 200  # that are looked at
_REPLAYS: Final = 50
_PATIENCE: Final = 2.0  # seconds for an answer of the mailboxes
_UNREVIEWED: Final = 200  # letters
_PENDING: Final = Term("is", Op.IS, (State.PENDING,))
_WANTED: Final = frozenset({GroupStatus.NEW, GroupStatus.REGRESSED, GroupStatus.ONGOING})


class Triage:
    """
    The answers of an office that is open in this process.

    With `sources`, only letters of these mailboxes exist for a method.

    Args:
        store: The store of the office.
        broker: The engine of the mailboxes.
        letters: The letters of the office.
        clock: The source of time.
        alerts: The limits of what needs somebody.
        approve_above: The letters above which replays need a second person; 0 is never.
    """

    def __init__(
        self,
        store: LetterStore,
        broker: Broker,
        letters: Letters,
        clock: Clock,
        alerts: Alerts | None = None,
        *,
        approve_above: int = 0,
    ) -> None:
        self._store = store
        self._broker = broker
        self._letters = letters
        self._clock = clock
        self._alerts = alerts or Alerts()
        self._searches = Searches(store, clock)
        self._approve_above = approve_above
        self._values: dict[tuple[str, ...], tuple[float, SearchValues]] = {}
        self._places: dict[tuple[str, ...], tuple[float, dict[str, int]]] = {}

    async def facets(self, query: str | Node = "", *, sources: Sequence[str] = ()) -> Facets:
        """Return the values of the newest letters that a search finds, by field."""
        page = await self._letters.search(query, limit=COUNTED, sources=sources)
        return count_facets(page.heads)

    async def nearby(self, text: str, *, sources: Sequence[str] = ()) -> Sequence[Nearby]:
        """Count the letters that share a field with a letter, up to a limit each."""
        letter = await self._letters.get(text, sources=sources)
        return await self.nearby_head(letter.head, sources=sources)

    async def nearby_head(
        self, head: LetterHead, *, sources: Sequence[str] = ()
    ) -> Sequence[Nearby]:
        """Return the result of `nearby` for a letter whose list entry is known."""
        found = []
        for field, terms in nearby_terms(head).items():
            node = All(tuple(terms))
            page = await self._letters.search(node, limit=MOST_NEARBY + 1, sources=sources)
            is_all = page.after is None
            near = count_nearby(field, show(node), head, page.heads, is_all=is_all)
            found.append(near)
        return found

    async def contents(
        self,
        text: str,
        by: By,
        *,
        start: int = 0,
        form: Form = Form.PRETTY,
        original: bool = False,
        reveal: bool = False,
        sources: Sequence[str] = (),
    ) -> BodySlice:
        """Return a part of the body of a letter; with `reveal` unmasked, which is recorded."""
        letter = await self._letters.get(text, sources=sources)
        if reveal:
            await record_reveal(self._store, letter, by)
        message = letter.as_it_died if original else letter.message
        return layout(message.body, start, form=form, reveal=reveal)

    async def common_values(self, name: str, *, sources: Sequence[str] = ()) -> CommonValues:
        """Return what the newest letters of a group have in common, and what varies."""
        return await group_common_values(self._store, name, sources=sources)

    async def suggest(
        self, text: str, at: int | None = None, *, who: Identity | None = None
    ) -> Sequence[Option]:
        """
        Return completions of a search; with `who` of what this caller may see.

        Values and places are counted at most every 30 seconds.
        """
        at = len(text) if at is None else at
        sources = () if who is None else who.sources
        masked = who is not None and not who.may(Role.OPERATOR)
        values = await self._known_values(sources)
        places: dict[str, int] = {}
        word = text[len(query_before(text, at)) : at].lower().lstrip("!")
        if word.startswith(("body.", "header.")):
            places = await self._known_places(query_before(text, at), sources, masked=masked)
        saved: dict[str, str] = {}
        if may_be_name(text, at):
            saved = {one.name: one.query for one in await self._searches.list(who=who)}
        return suggest(text, at, SearchValues(values.values, places, saved))

    async def _known_values(self, sources: tuple[str, ...]) -> SearchValues:
        now = self._clock.monotonic()
        known = self._values.get(sources)
        if known is not None and now - known[0] < _KEPT_FOR:
            return known[1]
        page = await self._letters.search(limit=RECENT, sources=sources)
        counts = await self._store.counts()
        of_sources_ = {
            name: sum(states.values())
            for name, states in counts.items()
            if not sources or name in sources
        }
        groups = await list_groups(self._store, sources=sources, everything=True, limit=_GROUPS)
        errors: dict[str, int] = {}
        for line in groups.groups:
            name = line.error_type.rpartition(".")[2]
            errors[name] = errors.get(name, 0) + line.open
        values = count_values(page.heads, of_sources_, errors)
        _keep(self._values, sources, (now, values))
        return values

    async def _known_places(
        self, query: str, sources: tuple[str, ...], *, masked: bool
    ) -> dict[str, int]:
        now = self._clock.monotonic()
        key = (query.strip(), str(masked), *sources)
        known = self._places.get(key)
        if known is not None and now - known[0] < _KEPT_FOR:
            return known[1]
        try:
            node = parse(query)
            node = sealed(node, query) if masked else node
        except QueryError:  # it is not finished
            node = EVERYTHING
        node = of_sources(self._letters.understand(node), sources)
        page = await self._store.find(node, limit=OPENED)  # one step, however costly
        ids = [head.id for head in page.heads if head.size <= LARGEST]
        places = count_places(await self._store.get(ids))
        _keep(self._places, key, (now, places))
        return places

    async def needs(
        self,
        *,
        sources: Sequence[str] = (),
        owner: str | None = None,
        problems: Sequence[Problem] = (),
    ) -> Sequence[Need]:
        """
        Return what needs somebody, the most urgent first.

        Args:
            sources: Only what is about these mailboxes.
            owner: Only replays that this principal planned.
            problems: Problems of the process that asks.
        """
        now = self._clock.now()
        counts = {
            source: states
            for source, states in (await self._store.counts()).items()
            if not sources or source in sources
        }
        paused, planned = [
            await self._store.campaigns(limit=_REPLAYS, only=state, owner=owner)
            for state in (CampaignState.PAUSED, CampaignState.PLANNED)
        ]
        unreviewed, is_all = await self._unreviewed(now, sources)
        queues, trouble = await self._queues(sources)
        scene = Scene(
            groups=await self._groups(sources),
            grown=await self._grown(now, sources),
            counts=counts,
            unreviewed=unreviewed,
            all_unreviewed=is_all,
            unsettled=await waiting(self._store, counts),
            halted=await self._halted(paused),
            paused=paused,
            planned=planned,
            approvals=[one for one in planned if waits_for_approval(one, self._approve_above)],
            outages=await list_outages(self._store, self._clock, only=sources, only_open=True),
            queues=queues,
            problems=(*problems, *trouble),
        )
        return rank_needs(scene, now, self._alerts)

    async def _groups(self, sources: Sequence[str]) -> list[Group]:
        found: list[Group] = []
        for source in sources or (None,):
            found += await self._store.groups(
                source=source, statuses=_WANTED, largest_first=True, limit=_GROUPS
            )
        return found

    async def _grown(self, now: datetime, sources: Sequence[str]) -> Mapping[str, int]:
        """Return the recent deaths of each group, as far as they are counted."""
        if not self._alerts.growing:
            return {}
        begin = instant(now - timedelta(seconds=self._alerts.growing_within))
        recent = of_sources(Term("since", Op.IS, (begin,)), sources)
        page = await self._store.find(recent, limit=max(COUNTED, self._alerts.growing))
        return Counter(head.fingerprint for head in page.heads)

    async def _unreviewed(
        self, now: datetime, sources: Sequence[str]
    ) -> tuple[list[LetterHead], bool]:
        if not self._alerts.unreviewed:
            return [], True
        begin = instant(now - timedelta(seconds=self._alerts.unreviewed))
        old = of_sources(All((_PENDING, Term("until", Op.IS, (begin,)))), sources)
        page = await self._store.find(old, limit=_UNREVIEWED)
        quiet = {
            group.fingerprint for group in await self._store.groups(statuses=HIDDEN, limit=_GROUPS)
        }
        heads = [head for head in page.heads if head.fingerprint not in quiet]
        return heads, page.after is None

    async def _halted(self, paused: Sequence[Campaign]) -> dict[str, str]:
        """Return why replays stopped by themselves; those that a person paused are left out."""
        halted = {}
        for campaign in paused:
            acts = await self._store.latest_audit(target=campaign.id, limit=1)
            if acts and acts[0].actor == ITSELF:
                halted[campaign.id] = acts[0].reason
        return halted

    async def _queues(
        self, sources: Sequence[str]
    ) -> tuple[Sequence[QueueInfo], Sequence[Problem]]:
        try:
            async with asyncio.timeout(_PATIENCE):
                queues = await self._broker.queues()
        except TimeoutError:
            return (), (Problem("mailboxes", f"no answer within {_PATIENCE:g} seconds"),)
        except BackendError as error:
            return (), (Problem("mailboxes", str(error)),)
        return [one for one in queues if not sources or one.options.name in sources], ()

    async def report(
        self,
        since: datetime,
        *,
        sources: Sequence[str] = (),
        owner: str | None = None,
        entries: Sequence[AuditEntry] | None = None,
        problems: Sequence[Problem] = (),
    ) -> ShiftReport:
        """
        Return what happened since a time, who did what, and what is open now.

        Args:
            since: The beginning of the shift.
            sources: Only what is about these mailboxes.
            owner: Only replays that this principal planned.
            entries: The audit since then, as far as the caller may see it; None reads it.
            problems: Problems of the process that asks.
        """
        if entries is None:
            wanted = AuditFilter(since=since)
            entries = await latest_entries(self._store, wanted, before=None, limit=LONGEST)
        counts = await self._store.counts()
        lines = await list_groups(self._store, sources=sources, everything=True, limit=_GROUPS)
        new, regressed = came(lines.groups, since)
        campaigns = await self._store.campaigns(limit=_REPLAYS, owner=owner)
        return ShiftReport(
            since=since,
            until=self._clock.now(),
            died=await self._letters.count(
                Term("since", Op.IS, (instant(since),)), sources=sources
            ),
            new=tuple(new),
            regressed=tuple(regressed),
            deeds=count_deeds(entries),
            all_deeds=len(entries) < LONGEST,
            replays=tuple(replay_line(one) for one in campaigns if one.created_at >= since),
            open=sum(
                still_open(states)
                for name, states in counts.items()
                if not sources or name in sources
            ),
            needs=tuple(await self.needs(sources=sources, owner=owner, problems=problems)),
        )


def _keep(
    kept: dict[tuple[str, ...], tuple[float, T]], key: tuple[str, ...], value: tuple[float, T]
) -> None:
    """Keep a value, and forget the oldest ones if there are many."""
    while len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
    kept[key] = value
