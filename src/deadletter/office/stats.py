"""Statistics: messages and letters by mailbox, and recent arrivals."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import Unsettled, is_any_unsettled, unsettled_letters
from deadletter.core.letter import State, still_open
from deadletter.ports import Broker, Clock, DeathCounting, Fate, LetterStore, QueueInfo

from .deaths import by_hour, chart_deaths, deaths_since

_SPANS: Final = (timedelta(hours=1), timedelta(days=1))


class MailboxLine(Struct, frozen=True, kw_only=True):
    """The numbers of one mailbox."""

    mailbox: str
    dead_queue: str | None
    ready: int
    delayed: int
    claimed: int
    suspects: int
    sent: int
    handled: int
    buried: int
    failed: int
    oldest_at: datetime | None


class Arrivals(Struct, frozen=True, kw_only=True):
    """Deaths in the last `seconds`, to five minutes: a letter that died twice counts twice."""

    seconds: float
    count: int
    at_least: bool = False  # always exact; here for older clients


class Stats(Struct, frozen=True, kw_only=True):
    """The numbers of an engine."""

    mailboxes: tuple[MailboxLine, ...]
    letters: dict[State, int]
    sources: dict[str, dict[State, int]]
    open: int
    arrivals: tuple[Arrivals, ...]  # empty if the office does not count deaths over time
    deaths_by_hour: tuple[int, ...] = ()  # of 24 hours, the current one last
    unsettled: tuple[Unsettled, ...] = ()  # letters that wait for an outcome


async def collect(
    broker: Broker, store: LetterStore | None, clock: Clock, *, only: Collection[str] = ()
) -> Stats:
    """Return everything that can be counted cheaply; of some mailboxes, or of all."""
    queues = await broker.queues()
    mailboxes = tuple(_line(queue) for queue in queues if not only or queue.options.name in only)
    counts = await store.counts() if store is not None else {}
    sources = {name: n for name, n in counts.items() if not only or name in only}
    letters = {
        state: total
        for state in State
        if (total := sum(states.get(state, 0) for states in sources.values()))
    }
    arrivals, hours = await _arrivals(store, clock, only)
    return Stats(
        mailboxes=mailboxes,
        letters=letters,
        sources=sources,
        open=still_open(letters),
        arrivals=arrivals,
        deaths_by_hour=hours,
        unsettled=await waiting(store, sources) if store is not None else (),
    )


async def waiting(
    store: LetterStore, counts: Mapping[str, Mapping[State, int]]
) -> tuple[Unsettled, ...]:
    """Return the letters that wait for the outcome of a replay, longest wait first."""
    since = await store.waiting_since() if is_any_unsettled(counts) else {}
    return unsettled_letters(counts, since)


async def _arrivals(
    store: LetterStore | None, clock: Clock, only: Collection[str]
) -> tuple[tuple[Arrivals, ...], tuple[int, ...]]:
    """Return recent arrivals, and deaths by hour."""
    if not isinstance(store, DeathCounting):
        return (), ()
    now = clock.now()
    chart = await chart_deaths(store, clock, since=now - _SPANS[-1], sources=tuple(only))
    arrivals = tuple(
        Arrivals(seconds=span.total_seconds(), count=deaths_since(chart, now - span))
        for span in _SPANS
    )
    return arrivals, by_hour(chart)


def _line(queue: QueueInfo) -> MailboxLine:
    tally = queue.tally
    return MailboxLine(
        mailbox=queue.options.name,
        dead_queue=queue.options.dead_queue,
        ready=queue.ready,
        delayed=queue.delayed,
        claimed=queue.claimed,
        suspects=queue.suspects,
        sent=tally.get("sent", 0),
        handled=tally.get(Fate.HANDLED, 0),
        buried=tally.get(Fate.BURIED, 0),
        failed=tally.get(Fate.FAILED, 0),
        oldest_at=queue.oldest_at,
    )
