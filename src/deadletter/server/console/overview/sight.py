"""What one person may see of the office now; the same for all who may see the same."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

from litestar import Request

from deadletter.core.access import Identity
from deadletter.core.campaign import Campaign, CampaignState
from deadletter.core.deaths import By, floor, when
from deadletter.core.errors import BackendError
from deadletter.core.letter import GroupStatus, State
from deadletter.office.audit import AuditFilter, Run, runs_of
from deadletter.office.deaths import DeathChart, Mark
from deadletter.office.mailboxes import Outage
from deadletter.office.triage.attention import Need
from deadletter.ports import QueueInfo
from deadletter.server.acting.office_views import (
    audit_positions,
    latest_audit_for,
    needs_for,
    owner_of,
)
from deadletter.server.console.fresh import LASTS
from deadletter.server.console.pages import Console, is_partial
from deadletter.server.context import ServerContext

T = TypeVar("T")

_REPLAYS: Final = 5
_ENTRIES: Final = 200  # of the audit, from which the latest acts are made
_SLOW: Final = 5.0  # seconds that costly values last
_DAY: Final = timedelta(days=1)


class Sight:
    """
    The office as one person sees it.

    A page is made anew. In parts that refresh by themselves, values may be a second old, the
    costly ones five: those who see the same share them, so a hundred viewers cost the office
    as much as one.
    """

    def __init__(
        self, request: Request[Any, Any, Any], context: ServerContext, who: Identity
    ) -> None:
        console: Console = request.app.state.console
        self.context = context
        self.who = who
        self._fresh = console.fresh
        self._positions = audit_positions(request)
        self._of = (who.sources, owner_of(who))
        self._shares = is_partial(request)

    async def counts(self) -> Mapping[str, Mapping[State, int]]:
        """Return the letters of each mailbox by state."""
        found = await self._shared("counts", self.context.store.counts, of=())
        return {name: states for name, states in found.items() if self.who.sees(name)}

    async def groups(self) -> Mapping[GroupStatus, int]:
        """Return how many groups with open letters there are by status."""
        found = await self._shared(
            "groups", lambda: self.context.store.group_counts(self.who.sources)
        )
        return {status: count.open for status, count in found.items()}

    async def needs(self, patience: float) -> Sequence[Need] | None:
        """Return what needs somebody; None if that takes longer than `patience` seconds."""
        return await self._fresh.soon(
            ("needs", self._of),
            lambda: needs_for(self.context, self.who),
            patience=patience,
            lasts=self._lasts(LASTS),
        )

    async def chart(self, span: timedelta, step: timedelta, by: By) -> DeathChart:
        """Return the deaths of the last `span`, the current step included."""
        now = self.context.clock.now()
        seconds = int(step.total_seconds())
        end = when(floor(int(now.timestamp()), seconds) + seconds)
        return await self._shared(
            ("chart", span, step, by),
            lambda: self.context.office.deaths(
                since=now - span, until=end, step=step, by=by, sources=self.who.sources
            ),
        )

    async def marks(self, span: timedelta) -> Sequence[Mark]:
        """Return what happened in the last `span`."""
        now = self.context.clock.now()
        return await self._shared(
            ("marks", span),
            lambda: self.context.office.marks(
                since=now - span, until=now, sources=self.who.sources, owner=owner_of(self.who)
            ),
            lasts=_SLOW,
        )

    async def recent_deaths(self, span: timedelta = _DAY) -> int | None:
        """Return the number of recent deaths; None if this office does not count them."""
        if not self.context.store.features.counts_deaths:
            return None
        return (await self.chart(span, timedelta(minutes=5), By.NONE)).total

    async def running(self) -> Sequence[Campaign]:
        """Return the replays that are running."""
        return await self._shared(
            "running",
            lambda: self.context.store.campaigns(
                limit=_REPLAYS, only=CampaignState.RUNNING, owner=owner_of(self.who)
            ),
        )

    async def outages(self) -> Sequence[Outage]:
        """Return the outages that have not ended."""
        return await self._shared(
            "outages",
            lambda: self.context.office.mailboxes.outages(only_open=True, sources=self.who.sources),
        )

    async def queues(self, patience: float) -> Sequence[QueueInfo] | str | None:
        """
        Return the mailboxes of the engine, or a sentence about why there are none.

        None if there is no answer within `patience` seconds.
        """
        lasts = self._lasts(LASTS)
        found = await self._fresh.soon(("queues",), self._queues, patience=patience, lasts=lasts)
        if found is None or isinstance(found, str):
            return found
        return [queue for queue in found if self.who.sees(queue.options.name)]

    async def _queues(self) -> Sequence[QueueInfo] | str:
        try:
            return await self.context.engine.broker.queues()
        except BackendError as error:
            return str(error)

    async def acts(self) -> tuple[Sequence[Run], bool]:
        """Return the latest acts, those in a row together, and whether there are no others."""
        latest = await self._shared(
            "acts",
            lambda: latest_audit_for(
                self.context, self.who, self._positions, AuditFilter(), None, _ENTRIES
            ),
            lasts=_SLOW if self.who.sources else LASTS,
        )
        return runs_of(latest.entries), latest.before is None

    async def once(self, name: object, make: Callable[[], Awaitable[T]], *, lasts: float) -> T:
        """Return a value that everybody may see, made anew after `lasts` seconds."""
        return await self._fresh.get((name, ()), make, lasts=lasts)

    async def _shared(
        self,
        name: object,
        make: Callable[[], Awaitable[T]],
        *,
        of: object = None,
        lasts: float = LASTS,
    ) -> T:
        key = (name, self._of if of is None else of)
        return await self._fresh.get(key, make, lasts=self._lasts(lasts))

    def _lasts(self, seconds: float) -> float:
        return seconds if self._shares else 0.0
