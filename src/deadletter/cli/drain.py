"""dlq drain: import dead letters of other systems."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

from cyclopts import Parameter
from msgspec import Struct
from rich.table import Table

from deadletter.core.errors import ConfigError
from deadletter.core.events import Event, Observer
from deadletter.core.letter import DeadLetter
from deadletter.intake.dialects import Trusted, origin_of
from deadletter.observe.logs import log_events
from deadletter.office.office import Office
from deadletter.office.outcomes import settle_all
from deadletter.ports import Drain, Foreign, Hidden, Hides, OutcomeProbe, loss_of
from deadletter.runtime.drain_loop import Intake, TakenIn
from deadletter.runtime.loop_group import Loop, LoopGroup
from deadletter.wiring.chores import Chore
from deadletter.wiring.foreign import dead_places, opened_foreign

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, Reason, Several
from .streams import never_wait
from .ui import (
    bar,
    cell,
    error_of,
    firm_column,
    many,
    number,
    number_column,
    short,
    span,
    table,
    text_column,
)
from .work import log_lines, metered

LOOK: Final = 1_000  # letters of a dry run, and of one batch, unless --limit is given
_SAMPLES: Final = 20
_SETTLE_EVERY: Final = 2.0  # seconds between looks at copies sent to others


class Row(Struct, frozen=True):
    """Counts of one dead queue, mailbox and dialect."""

    place: str
    source: str
    dialect: str


class Sums:
    """Totals of draining."""

    def __init__(self) -> None:
        self.rows: Counter[Row] = Counter()
        self.new = 0
        self.known = 0  # letters that the office already had
        self.refused = 0  # rejected by the office; they stay in their dead queue
        self.hidden: dict[str, Hidden] = {}  # by place: messages in flight elsewhere

    @property
    def taken(self) -> int:
        return self.rows.total()

    def add(self, place: str, taken: Sequence[TakenIn]) -> None:
        """Count the letters that were taken from a place."""
        for one in taken:
            if one.kept is None:
                self.refused += 1
                continue
            self.new += one.kept.is_new
            self.known += not one.kept.is_new
            self.rows[_row(place, one.letter)] += 1


async def drain(
    server: str,
    /,
    *queues: str,
    limit: AtMost = None,
    dry_run: Flag = False,
    follow: Flag = False,
    source: Several = (),
    health_port: Annotated[int | None, Parameter(show_default=False)] = None,
    reason: Reason = "",
    desk: AtDesk,
) -> ExitCode:
    """
    Import letters from a broker's or framework's own dead-letter queues.

    Reads the error details that brokers and frameworks write. A message leaves its dead queue
    once its letter is stored; messages that cannot be parsed are stored too. `dlq replay`
    sends letters back. Replayed copies that did not fail again in the time of the replay are
    presumed handled.

    Args:
        server: The server: a name of [sources.NAME] in the settings, or sqs://,
            amqp://, kafka://, redis:// or valkey://, nats://; with TLS amqps://,
            rediss://, tls://.
        queues: The dead queues, topics or registries, such as orders-dlq, rq:default,
            bullmq:mail, dramatiq:default, celery:dead (default: those that can be
            recognised).
        limit: The maximum number of letters.
        dry_run: Only count: nothing is stored or removed.
        follow: Continue until interrupted, and log what happens.
        source: A mailbox that headers may name as the source of a message; `*` matches any
            characters. orders-dlq may always name orders. Letters that name another
            mailbox belong to the queue where they were found. Can be repeated.
        health_port: With --follow, answer /health/live, /health/ready and /metrics
            on this port.
        reason: Why; recorded in the audit.
    """
    if follow and (dry_run or limit is not None):
        raise ConfigError("--follow cannot be combined with --limit or --dry-run")
    desk.check_here()
    name = desk.ways.named(server)
    async with opened_foreign(desk.ways.url(name), clock=desk.clock) as foreign:
        drains = await dead_places(foreign, queues, may_be_none=not follow)
        if not drains:
            desk.hint(
                "No dead queue was recognised on this server. Name one, as in"
                " `dlq drain SERVER orders-dlq`."
            )
        async with desk.here(make=True) as office:
            work = _Draining(desk, office, Trusted(source), name, foreign)
            if follow:
                return await _follow(work, drains, health_port)
            if dry_run:
                await _look(work, drains, limit or LOOK)
                return ExitCode.OK
            return await _take(work, drains, limit, reason)


class _Draining:
    """The steps that dry runs, single runs and --follow share."""

    def __init__(
        self, desk: Desk, office: Office, trusted: Trusted, server: str, foreign: Foreign
    ) -> None:
        self.desk = desk
        self.office = office
        self._trusted = trusted
        self._server = server
        self._probe = foreign if isinstance(foreign, OutcomeProbe) else None

    def intake(self, drain: Drain, observe: Observer) -> Intake:
        """Make the loop that drains one place."""
        return Intake(
            drain=drain,
            letters=self.office.store,
            clock=self.desk.clock,
            dice=self.desk.dice,
            observe=observe,
            ring=self.office.ring,
            trusted=self._trusted,
            server=self._server,
        )

    async def settle(self) -> int:
        """Settle replayed copies that did not fail again, or whose outcome is known."""
        probes = {self._server: self._probe}
        store, ways = self.office.store, self.desk.ways
        return await settle_all(store, self.desk.clock, ways, probes=probes)


async def _take(
    work: _Draining, drains: Sequence[Drain], limit: int | None, reason: str
) -> ExitCode:
    desk, sums = work.desk, Sums()
    for drain in drains:
        left = None if limit is None else limit - sums.taken
        if left == 0:
            break
        before = sums.taken
        await _empty(work, drain, left, sums)
        detail = many(sums.taken - before, "letter")
        await work.office.store.record("drain", drain.place, desk.by(reason), detail)
    await work.settle()
    _show(desk, sums)
    if sums.refused:
        desk.err.print(
            f"The office rejected {many(sums.refused, 'letter')}: their messages stay in "
            "the dead queue.",
            soft_wrap=True,
        )
        return ExitCode.UNAVAILABLE
    return ExitCode.OK


async def _empty(work: _Draining, drain: Drain, left: int | None, sums: Sums) -> None:
    intake = work.intake(drain, _nobody)
    depth = await drain.depth()
    total = depth if left is None else min(depth, left)
    try:
        with bar(work.desk, drain.place, total) as advance:
            while left is None or left > 0:
                taken = await intake.once(left or LOOK)
                if not taken:
                    await _count_hidden(drain, sums)
                    return
                sums.add(drain.place, taken)
                advance(len(taken))
                left = None if left is None else left - len(taken)
    finally:
        await intake.end()


async def _count_hidden(drain: Drain, sums: Sums) -> None:
    """Count messages in flight in an empty place: another drain may have died."""
    if isinstance(drain, Hides):
        hidden = await drain.hidden()
        count = hidden.count - sums.refused  # this run still holds the rejected ones
        if count > 0:
            sums.hidden[drain.place] = Hidden(count, hidden.seconds)


async def _look(work: _Draining, drains: Sequence[Drain], limit: int) -> None:
    desk, sums = work.desk, Sums()
    seen: list[DeadLetter] = []
    for drain in drains:
        await drain.depth()  # raises if the place does not exist
        intake = work.intake(drain, _nobody)
        letters = await intake.look(limit - len(seen))
        await intake.end()
        sums.rows.update(_row(drain.place, letter) for letter in letters)
        seen += letters
        if len(seen) >= limit:
            break
    _show(desk, sums, is_look=True)
    if desk.as_json or not seen:
        return
    shown = table()
    firm_column(shown, "letter")
    text_column(shown, "mailbox")
    text_column(shown, "message")
    text_column(shown, "why")
    for letter in seen[:_SAMPLES]:
        head = letter.head
        shown.add_row(
            cell(short(head.id, desk.out.width), "cyan"),
            cell(head.source),
            cell(head.message_id),
            cell(error_of(head)),
        )
    desk.show(shown)
    if len(seen) > _SAMPLES:
        desk.hint(f"…and {len(seen) - _SAMPLES:,} more.")


async def _follow(work: _Draining, drains: Sequence[Drain], port: int | None) -> ExitCode:
    desk = work.desk
    observe, metrics = metered(log_events(desk.clock, log=log_lines(desk)))
    loops: list[Loop] = [work.intake(drain, observe) for drain in drains]
    loops.append(
        Chore("outcomes", work.settle, interval=_SETTLE_EVERY, clock=desk.clock, observe=observe)
    )
    group = LoopGroup(
        loops,
        clock=desk.clock,
        observe=observe,
        health_port=port,
        metrics=metrics,
        lost=partial(loss_of, work.office.engine),
    )
    never_wait(desk.clock, as_json=desk.as_json)
    desk.hint("Draining until you press Ctrl-C.")
    return ExitCode.OK if await group.run() == 0 else ExitCode.UNEXPECTED


def _row(place: str, letter: DeadLetter) -> Row:
    origin = origin_of(letter.message)
    dialect = origin.dialect if origin is not None else "deadletter"
    return Row(place, letter.head.source, dialect or "unknown")


def _show(desk: Desk, sums: Sums, *, is_look: bool = False) -> None:
    if desk.as_json:
        places = [
            {"place": r.place, "source": r.source, "dialect": r.dialect, "letters": n}
            for r, n in sums.rows.most_common()
        ]
        counts = {"new": sums.new, "known": sums.known, "refused": sums.refused}
        flight = sum(hidden.count for hidden in sums.hidden.values())
        counts["in_flight"] = flight
        desk.document({"found": sums.taken, **counts, "places": places})
        return
    for place, hidden in sums.hidden.items():
        desk.tell(
            f"{place}: {many(hidden.count, 'message')} in flight. Messages that an"
            f" interrupted drain held become visible within {span(hidden.seconds)}: drain"
            " again."
        )
    if not sums.taken and sums.hidden:
        return
    if not sums.taken:
        desk.tell("No dead letters found.")
        return
    desk.show(_table(sums.rows))
    if is_look:
        desk.tell(f"{many(sums.taken, 'letter')} found; nothing was imported.")
        return
    known = f", {sums.known:,} of them already known" if sums.known else ""
    desk.tell(f"{many(sums.taken, 'letter')} imported{known}.")


def _table(rows: Counter[Row]) -> Table:
    shown = table()
    text_column(shown, "found in")
    text_column(shown, "mailbox")
    firm_column(shown, "dialect")
    number_column(shown, "letters")
    for row, count in rows.most_common():
        shown.add_row(cell(row.place), cell(row.source, "cyan"), cell(row.dialect), number(count))
    return shown


def _nobody(event: Event) -> None:
    """Drop events; the table at the end has the results."""
