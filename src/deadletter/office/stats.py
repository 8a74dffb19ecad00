"""Statistics: messages and letters by mailbox, and recent arrivals."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import Unsettled, is_any_unsettled, unsettled_letters
from deadletter.core.letter import State, still_open
from deadletter.core.query.ast import Op, Term
from deadletter.ports import Broker, Clock, Fate, LetterStore, QueueInfo

from .batches import whole_letters
from .letter_search import of_sources
from .letters import Letters
from .view import earlier_deaths

COUNTED: Final = 10_000  # arrivals are counted up to here; more is "at least"
RETOLD: Final = 2_000  # letters whose stories are read for how often they died


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
    """Deaths in the last `seconds`: a letter that died twice counts twice."""

    seconds: float
    count: int
    at_least: bool = False  # there were too many to count them all


class Stats(Struct, frozen=True, kw_only=True):
    """The numbers of an engine."""

    mailboxes: tuple[MailboxLine, ...]
    letters: dict[State, int]
    sources: dict[str, dict[State, int]]
    open: int
    arrivals: tuple[Arrivals, ...]
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
    return Stats(
        mailboxes=mailboxes,
        letters=letters,
        sources=sources,
        open=still_open(letters),
        arrivals=await _arrivals(store, clock, only) if store is not None else (),
        unsettled=await waiting(store, sources) if store is not None else (),
    )


async def waiting(
    store: LetterStore, counts: Mapping[str, Mapping[State, int]]
) -> tuple[Unsettled, ...]:
    """Return the letters that wait for the outcome of a replay, longest wait first."""
    since = await store.waiting_since() if is_any_unsettled(counts) else {}
    return unsettled_letters(counts, since)


async def _arrivals(
    store: LetterStore, clock: Clock, only: Collection[str]
) -> tuple[Arrivals, ...]:
    letters = Letters(store, clock)
    now = clock.now()
    spans = (timedelta(hours=1), timedelta(days=1))
    lately = of_sources(Term("since", Op.IS, ("1d",)), tuple(only))
    times: list[datetime] = []
    replayed: list[str] = []
    async for heads in letters.select(lately, limit=COUNTED):
        times += (head.dead_at for head in heads)
        replayed += (head.id for head in heads if head.replays)
    # Newest first: if the counting stopped early, what is older was not seen.
    cut = len(times) >= COUNTED
    oldest = times[-1] if times else now
    if len(replayed) > RETOLD:
        cut, oldest = True, now
    async for some in whole_letters(store, replayed[:RETOLD]):
        times += (at for letter in some for at in earlier_deaths(letter))
    return tuple(
        Arrivals(
            seconds=span.total_seconds(),
            count=sum(1 for at in times if at >= now - span),
            at_least=cut and oldest >= now - span,
        )
        for span in spans
    )


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
