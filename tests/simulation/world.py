"""
A simulated world: several processes, one durable engine, and everything going wrong.

    verdict = run_world(plan_of(7), crew, open_engine)

`crew` builds what runs in one process, from ports that lie at the end of a bad
wire; `open_engine` opens the engine that survives all of it. What was found wrong
is in `verdict.violations`. The same plan gives the same verdict, line by line.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from deadletter.core.events import Event
from deadletter.ports import (
    AtomicBurial,
    AtomicReplay,
    Broker,
    Clock,
    Dice,
    Engine,
    Ledger,
    LetterStore,
    QueueOptions,
)
from deadletter.testing.virtual_time import Process, SeededDice, VirtualClock
from simulation.claims import Claims
from simulation.evidence import Evidence, all_letters, ledger_of, left_in
from simulation.faulty import (
    Weather,
    Wire,
    far_broker,
    far_ledger,
    far_letters,
    far_postman,
    far_undertaker,
)
from simulation.nemesis import Machine
from simulation.oracle import judge
from simulation.plans import DRAINED_BY, Plan
from simulation.trace import Trace
from simulation.violation import Check, Violation
from simulation.workload import MAILBOXES, MAX_ATTEMPTS, Effects

_RESTART: Final = 1.0  # seconds until a process that ended is started again
_STOPS_WITHIN: Final = 60.0
_LOOK: Final = 1.0


class Looping(Protocol):
    """Something that runs in a process until it is told to stop."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set."""


class Place(Struct, frozen=True, kw_only=True):
    """All that a process can reach."""

    broker: Broker
    letters: LetterStore
    atomic_burial: AtomicBurial | None  # where the engine has one, and the plan wants it
    atomic_replay: AtomicReplay | None
    ledger: Ledger
    clock: Clock
    dice: Dice
    observe: Callable[[Event], None]
    effects: Effects
    plan: Plan


Crew: TypeAlias = Callable[[Place], Sequence[Looping]]
OpenEngine: TypeAlias = Callable[[Clock, Dice], Awaitable[Engine]]
IsOver: TypeAlias = Callable[[Engine], Awaitable[bool]]


class Verdict(Struct, frozen=True, kw_only=True):
    """How a world ended."""

    plan: Plan
    violations: list[Violation]
    digest: str  # of the whole trace
    lines: list[str]  # the end of it
    boots: int  # processes that were started
    seconds: float  # of virtual time
    hits: Counter[str]  # faults, by kind and verb
    events: Counter[str]

    def story(self) -> str:
        """What a person needs to find out why."""
        broken = "\n".join(map(str, self.violations))
        return f"{self.plan}\n\n{broken}\n\n" + "\n".join(self.lines)


class World:
    """Machines, an engine, and somebody who sends."""

    def __init__(self, plan: Plan, weather: Weather, crew: Crew, *, clock: VirtualClock) -> None:
        self.plan = plan
        self.clock = clock
        self.trace = Trace()
        self.effects = Effects(plan.parcels)
        self.machines = [Machine(f"p{number}") for number in range(plan.processes)]
        self.is_stopping = False
        self._weather = weather
        self._crew = crew
        self._claims = Claims()
        self._hits: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._crashes: list[str] = []
        self._unstopped: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_error)

    async def begin(self, engine: Engine, operator: Crew | None = None) -> None:
        """Start every machine, and send; an operator has a machine to himself."""
        self.engine = engine
        limit = MAX_ATTEMPTS if self.plan.swept else 0
        for name in MAILBOXES[: self.plan.mailboxes]:
            options = QueueOptions(name=name, max_attempts=limit)
            await engine.broker.create(options)
        self._sending = asyncio.create_task(self._send())
        crews = [self._crew] * len(self.machines)
        if operator is not None:
            self.machines.append(Machine("operator"))
            crews.append(operator)
        self._supervising = [
            asyncio.create_task(self._supervise(machine, crew))
            for machine, crew in zip(self.machines, crews, strict=True)
        ]

    async def drained(self, is_over: IsOver | None = None) -> None:
        """Wait until every message has an outcome, or the time for it is over."""
        while self._loop.time() < DRAINED_BY:
            left = sum(map(left_in, await self.engine.broker.queues()))
            is_empty = self._sending.done() and not left
            if is_empty and (is_over is None or await is_over(self.engine)):
                return
            await asyncio.sleep(_LOOK)

    async def stop(self) -> None:
        """Ask everybody to stop, and see that they do."""
        self.is_stopping = True
        for machine in self.machines:
            machine.stop.set()
        await asyncio.wait(self._supervising, timeout=_STOPS_WITHIN)
        for machine, task in zip(self.machines, self._supervising, strict=True):
            if not task.done():
                self._unstopped.append(machine.name)

    async def verdict(self, *more: Check) -> Verdict:
        """Look at everything that is left, and for `more` than usual."""
        assert self.engine.letters is not None
        evidence = Evidence(
            plan=self.plan,
            effects=self.effects,
            sent=self._sent,
            letters=await all_letters(self.engine.letters),
            queues=tuple(await self.engine.broker.queues()),
            ledger=await ledger_of(self.engine, self.effects),
            complaints=tuple(await self.engine.letters.verify()),
            campaigns=tuple(await self.engine.letters.campaigns()),
            unfenced=tuple(self._claims.unfenced),
            left_behind=self._claims.left_behind(),
            crashes=tuple(self._crashes),
            unstopped=tuple(self._unstopped),
            hits=self._hits,
        )
        return Verdict(
            plan=self.plan,
            violations=judge(evidence, *more),
            digest=self.trace.digest,
            lines=list(self.trace.lines),
            boots=sum(machine.boots for machine in self.machines),
            seconds=self._loop.time(),
            hits=self._hits,
            events=self._events,
        )

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        self.trace.note(self._loop.time(), text)

    async def _supervise(self, machine: Machine, crew: Crew) -> None:
        """Keep a machine running, whatever becomes of its processes."""
        while not self.is_stopping:
            process = machine.boot()
            self.note(f"{process.name} starts")
            loops = crew(self._place(machine, process))
            machine.work = process.start(self._live(process, loops, machine.stop))
            await process.ended.wait()
            self._claims.ended[process.name] = self._loop.time()
            self.note(f"{process.name} has ended")
            await asyncio.sleep(_RESTART)

    async def _live(self, process: Process, loops: Sequence[Looping], stop: asyncio.Event) -> None:
        tasks = [asyncio.create_task(loop.run(stop)) for loop in loops]
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            ends = [None if t.cancelled() else t.exception() for t in tasks]
            self._crashes += [f"{process.name}: {end!r}" for end in ends if end]
            process.kill()

    def _place(self, machine: Machine, process: Process) -> Place:
        assert self.engine.letters is not None
        assert self.engine.ledger is not None
        wire = Wire(
            process, self._weather, trace=self.trace, hits=self._hits, witness=self._claims.saw
        )

        def observe(event: Event) -> None:
            tag = str(type(event).__struct_config__.tag)
            self._events[tag] += 1
            self.note(f"{process.name} {tag} {getattr(event, 'message_id', '')}")

        return Place(
            broker=far_broker(self.engine.broker, wire),
            letters=far_letters(self.engine.letters, wire),
            atomic_burial=self._atomic_burial(wire),
            atomic_replay=self._atomic_replay(wire),
            ledger=far_ledger(self.engine.ledger, wire),
            clock=machine.clock,
            dice=SeededDice(f"{process.name} {self.plan.seed}", machine.clock),
            observe=observe,
            effects=self.effects,
            plan=self.plan,
        )

    def _atomic_burial(self, wire: Wire) -> AtomicBurial | None:
        if not self.plan.together or self.engine.atomic_burial is None:
            return None
        return far_undertaker(self.engine.atomic_burial, wire)

    def _atomic_replay(self, wire: Wire) -> AtomicReplay | None:
        if not self.plan.together or self.engine.atomic_replay is None:
            return None
        return far_postman(self.engine.atomic_replay, wire)

    async def _send(self) -> None:
        for parcel in sorted(self.plan.parcels, key=lambda parcel: parcel.at):
            await asyncio.sleep(max(0.0, parcel.at - self._loop.time()))
            message = parcel.message(self.clock)
            for _ in range(parcel.copies):
                await self.engine.broker.sink(parcel.mailbox).send([message])
                self._sent[parcel.id] += 1

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._crashes.append(f"{context.get('message')}: {context.get('exception')!r}")
