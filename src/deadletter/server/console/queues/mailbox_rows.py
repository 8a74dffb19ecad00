"""Mailboxes as rows: messages, letters, workers, brakes, and sums that prove themselves."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from litestar import Request
from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.brake import WindowState
from deadletter.core.errors import BackendError, ConfigError
from deadletter.core.letter import State, still_open
from deadletter.core.text import clean, many
from deadletter.office.mailboxes import Outage
from deadletter.office.triage.facets import term_text
from deadletter.office.verify import Sums, sums_of, unbalanced
from deadletter.office.workers import WorkerLine, version_spread, workers_of
from deadletter.ports import QueueInfo
from deadletter.server.console.pages import path_to
from deadletter.server.context import ServerContext

from .broker_look import BrokerSilent, looks_of

_OUTAGES: Final = 200
_STATES: Final = (
    (State.PENDING, "pending"),
    (State.REVIEWED, "reviewed"),
    (State.REPLAYING, "replaying"),
    (State.QUARANTINED, "quarantined"),
)


class Messages(Struct, frozen=True, kw_only=True):
    """The messages in a mailbox; None where the engine cannot tell."""

    ready: int
    delayed: int | None
    claimed: int | None
    suspects: int
    oldest_at: datetime | None

    @property
    def inside(self) -> int:
        """Return all of them."""
        return self.ready + (self.delayed or 0) + (self.claimed or 0) + self.suspects


class Brake(Struct, frozen=True, kw_only=True):
    """Why the workers of a mailbox do not fetch, and since when."""

    since: datetime
    text: str
    kind: str
    held: int


class Conservation(Struct, frozen=True, kw_only=True):
    """Messages that came, left and are there; they add up, or something is wrong."""

    sent: int
    left: int
    present: int
    problem: str = ""


class MailboxRow(Struct, frozen=True, kw_only=True):
    """One mailbox, as far as this server knows it."""

    name: str
    path: str
    letters_path: str
    dead_queue: str | None = None
    dead_queue_of: tuple[str, ...] = ()
    messages: Messages | None = None  # None: the broker did not say
    open: int = 0
    states: tuple[tuple[str, int], ...] = ()  # letters by open state
    replayed: int = 0
    finished: int = 0
    workers: int = 0
    silent: int = 0
    versions: str = ""
    brake: Brake | None = None
    sums: Conservation | None = None  # None: the engine does not count
    unworked: bool = False  # messages are ready, and nobody is known to work them

    def dialog(self, act: str) -> str:
        """Return the path of the dialog of an act on it."""
        return path_to("queue", "dialog", act=act, name=self.name)

    def beside(self, name: str) -> str:
        """Return the path of another mailbox."""
        return path_to("queues", name)


class MailboxTable(Struct, frozen=True, kw_only=True):
    """All mailboxes that a person sees."""

    headline: str
    below: str
    rows: tuple[MailboxRow, ...]
    silent: str  # a sentence if the broker did not answer
    counts: bool  # the engine counts what came and left
    knows_workers: bool
    engine: str


class Known(Struct, frozen=True, kw_only=True):
    """Everything that rows are made of."""

    queues: Sequence[QueueInfo] | None
    problem: str
    counts: Mapping[str, Mapping[State, int]]
    workers: Sequence[WorkerLine]
    knows_workers: bool
    outages: Sequence[Outage]
    tallies: bool
    sees_delayed: bool


async def load_known(request: Request[Any, Any, Any], who: Identity, patience: float) -> Known:
    """Ask the broker, for so long, and the office."""
    context: ServerContext = request.app.state.context
    queues: Sequence[QueueInfo] | None = None
    problem = ""
    try:
        queues = await looks_of(request).look(patience)
    except BrokerSilent as error:
        problem = str(error)
    except BackendError as error:
        problem = f"the broker cannot be reached: {error}"
    workers, knows_workers = await load_workers(context, who)
    counts = await context.store.counts()
    features = context.engine.broker.features
    return Known(
        queues=None if queues is None else [one for one in queues if who.sees(one.options.name)],
        problem=problem,
        counts={name: states for name, states in counts.items() if who.sees(name)},
        workers=workers,
        knows_workers=knows_workers,
        outages=await context.office.mailboxes.outages(
            sources=who.sources, only_open=True, limit=_OUTAGES
        ),
        tallies=features.tallies,
        sees_delayed=features.sees_delayed,
    )


async def load_workers(context: ServerContext, who: Identity) -> tuple[Sequence[WorkerLine], bool]:
    """Return the workers, and whether the office knows them at all."""
    try:
        return await context.office.workers(sources=who.sources), True
    except ConfigError:
        return (), False


async def load_table(
    request: Request[Any, Any, Any], who: Identity, patience: float
) -> MailboxTable:
    """Return all mailboxes that this person sees."""
    context: ServerContext = request.app.state.context
    known = await load_known(request, who, patience)
    rows = mailbox_rows(known)
    return MailboxTable(
        headline=_headline(rows),
        below=_below(rows, known),
        rows=rows,
        silent=known.problem,
        counts=known.tallies,
        knows_workers=known.knows_workers,
        engine=context.engine.features.engine,
    )


def mailbox_rows(known: Known) -> tuple[MailboxRow, ...]:
    """Return a row for every mailbox that anything is known of, those in trouble first."""
    queues = {one.options.name: one for one in known.queues or ()}
    worked = {box.mailbox for one in known.workers for box in one.mailboxes}
    names = queues.keys() | known.counts.keys() | worked
    rows = [mailbox_row(name, queues, known) for name in names]
    return tuple(sorted(rows, key=_rank))


def mailbox_row(name: str, queues: Mapping[str, QueueInfo], known: Known) -> MailboxRow:
    """Return one mailbox."""
    queue = queues.get(name)
    states = known.counts.get(name, {})
    there = workers_of(known.workers, name)
    heard = [one for one in there if not one.is_silent]
    return MailboxRow(
        name=name,
        path=path_to("queues", name),
        letters_path=path_to("letters", q=f"is:open {term_text('source', name)}".strip()),
        dead_queue=queue.options.dead_queue if queue else None,
        dead_queue_of=tuple(
            other for other, one in queues.items() if one.options.dead_queue == name
        ),
        messages=_messages(queue, known) if queue else None,
        open=still_open(states),
        states=tuple((word, states[one]) for one, word in _STATES if states.get(one)),
        replayed=states.get(State.REPLAYED, 0),
        finished=states.get(State.CLOSED, 0) + states.get(State.DISCARDED, 0),
        workers=len(heard),
        silent=len(there) - len(heard),
        versions=version_spread(there),
        brake=_brake(name, known.outages, heard),
        sums=conservation(sums_of(queue)) if queue and known.tallies else None,
        unworked=bool(
            queue and queue.ready and not queue.claimed and known.knows_workers and not heard
        ),
    )


def conservation(sums: Sums) -> Conservation:
    """Return the sums of a mailbox, with a sentence if they do not add up."""
    return Conservation(
        sent=sums.sent, left=sums.left, present=sums.present, problem=" ".join(unbalanced(sums))
    )


def _messages(queue: QueueInfo, known: Known) -> Messages:
    return Messages(
        ready=queue.ready,
        delayed=queue.delayed if known.sees_delayed else None,
        claimed=queue.claimed,
        suspects=queue.suspects,
        oldest_at=queue.oldest_at,
    )


def _brake(name: str, outages: Iterable[Outage], workers: Iterable[WorkerLine]) -> Brake | None:
    """Return the open brake of a mailbox: as its window says, or as its workers say."""
    for outage in outages:
        window = outage.window
        if window.mailbox == name and outage.state is WindowState.OPEN:
            return Brake(
                since=window.opened_at, text=window.text, kind=window.kind, held=window.held
            )
    for worker in workers:
        for box in worker.mailboxes:
            if box.mailbox == name and box.brake and box.brake_since is not None:
                return Brake(since=box.brake_since, text=box.brake, kind="", held=0)
    return None


def _rank(row: MailboxRow) -> tuple[bool, bool, bool, bool, str]:
    is_wrong = bool(row.sums and row.sums.problem)
    is_dead_queue = bool(row.dead_queue_of)
    return not is_wrong, row.brake is None, is_dead_queue, not row.open, row.name


def _headline(rows: Sequence[MailboxRow]) -> str:
    if not rows:
        return "No mailboxes yet"
    wrong = sum(bool(row.sums and row.sums.problem) for row in rows)
    stopped = sum(row.brake is not None for row in rows)
    parts = [many(len(rows), "mailbox", "mailboxes")]
    if wrong:
        parts.append(f"{wrong:,} where messages do not add up")
    if stopped:
        parts.append("1 stopped by its brake" if stopped == 1 else f"{stopped:,} stopped")
    return ", ".join(parts)


def _below(rows: Sequence[MailboxRow], known: Known) -> str:
    parts = []
    if known.queues is not None and rows:
        inside = sum(row.messages.inside for row in rows if row.messages)
        parts.append(f"{many(inside, 'message')} in them")
    if known.knows_workers:
        heard = [one for one in known.workers if not one.is_silent]
        spread = version_spread(known.workers)
        text = many(len(heard), "worker") if heard else "no worker was heard of lately"
        parts.append(f"{text}, {spread}" if spread and heard else text)
    wrong = any(row.sums and row.sums.problem for row in rows)
    if known.tallies and rows and known.queues is not None and not wrong:
        parts.append("every message that came has left or is there")
    return clean(" · ".join(parts))
