"""Everything that runs in one process, put together from what was registered."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.events import Observer
from deadletter.core.rule import Rule
from deadletter.ports import (
    PROCESS_KEYS,
    Clock,
    Dice,
    Engine,
    KeyRing,
    LetterStore,
    QueueOptions,
)

from .dlq_consumer import DLQConsumer
from .handlers import (
    Handler,
    Middleware,
    around,
    as_async,
    is_async,
    started_threads,
    wrap,
)
from .isolation import ProcessRunner
from .loop import Loop
from .options import THREADS, CauseOf, WorkerOptions
from .orphan_guard import OrphanGuard
from .solitude import Solitude
from .sweep import Sweep
from .typed import typed
from .worker import Worker


class Registration(Struct, frozen=True, kw_only=True):
    """A handler and how its mailbox is to be worked."""

    mailbox: str
    function: Callable[..., Any]
    options: WorkerOptions
    isolated: bool = False  # in processes of its own
    memory_limit: int | None = None  # bytes, of each of those processes
    middleware: tuple[Middleware, ...] = ()

    def naming(self, cause_of: CauseOf | None) -> "Registration":
        """The same, with causes named by the application's own function."""
        if cause_of is None:
            return self
        options = structs.replace(self.options, cause_of=cause_of)
        return structs.replace(self, options=options)

    def asking(self, rules: Sequence[Rule]) -> "Registration":
        """The same, with these rules asked before those of its policy."""
        if not rules:
            return self
        policy = self.options.policy
        classifier = policy.classifier.extended(*rules)
        policy = structs.replace(policy, classifier=classifier)
        options = structs.replace(self.options, policy=policy)
        return structs.replace(self, options=options)


class LetterHandler(Struct, frozen=True, kw_only=True):
    """A handler for the letters in a dead-letter mailbox."""

    mailbox: str
    function: Callable[..., Any]
    options: dict[str, Any]


class Crew:
    """The loops of one process, and what they share."""

    def __init__(
        self,
        engine: Engine,
        letters: LetterStore,
        *,
        handlers: Sequence[Registration],
        letter_handlers: Sequence[LetterHandler],
        clock: Clock,
        dice: Dice,
        observe: Observer,
        version: str = "",
        ring: KeyRing | None = None,
    ) -> None:
        self._engine = engine
        self._letters = letters
        # Only where the office is the engine's own.
        is_own = letters is engine.letters
        self._undertaker = engine.undertaker if is_own else None
        self._handlers = handlers
        self._letter_handlers = letter_handlers
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._version = version
        self._ring = ring or KeyRing(letters)
        self._keys = PROCESS_KEYS
        self._threads: list[ThreadPoolExecutor] = []
        self._runners: list[ProcessRunner] = []
        self._guard = OrphanGuard()

    async def assemble(self) -> list[Loop]:
        """The loops, ready to run; mailboxes that do not exist yet are made."""
        if not self._handlers and not self._letter_handlers:
            raise ConfigError(
                'there is nothing to work: register a handler with @app.handler("…")'
            )
        self._keys = await self._ring.keys()
        queues = await self._declare()
        await self._check_limits()
        solitude = Solitude()
        loops: list[Loop] = []
        policies = {}
        for registration in self._handlers:
            registered = _with_dead_queue(registration, queues)
            policies[registered.mailbox] = registered.options.policy
            loops.append(self._worker(registered, solitude))
        loops.extend(
            self._consumer(handler, solitude, queues)
            for handler in self._letter_handlers
        )
        for runner in self._runners:  # what cannot be loaded is found here
            await runner.start()
        loops.append(
            Sweep(
                broker=self._engine.broker,
                letters=self._letters,
                undertaker=self._undertaker,
                ledger=self._engine.ledger,
                policies=policies,
                solitude=solitude,
                clock=self._clock,
                dice=self._dice,
                observe=self._observe,
                interval=min(1.0, *(r.options.lease / 4 for r in self._handlers), 1.0),
                version=self._version,
                keys=self._keys,
            )
        )
        return loops

    async def disband(self) -> None:
        """End the threads and processes that handlers ran in."""
        for runner in self._runners:
            await runner.close()
        self._guard.close()
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _declare(self) -> dict[str, QueueOptions]:
        """Make the mailboxes we need, their dead-letter mailboxes first."""
        broker = self._engine.broker
        for registration in self._handlers:
            policy, mailbox = registration.options.policy, registration.mailbox
            dead = {policy.dead_queue, *(route.to for route in policy.routes)}
            names = {policy.dead_mailbox(mailbox, name) for name in dead if name}
            for name in [*sorted(filter(None, names)), mailbox]:
                with suppress(Conflict):  # it is there already, with options of its own
                    await broker.create(QueueOptions(name=name))
        known = {queue.options.name: queue.options for queue in await broker.queues()}
        for registration in self._handlers:
            options = known[registration.mailbox]
            target = registration.options.policy.dead_mailbox(options.name, None)
            if target is not None and options.dead_queue != target:
                known[options.name] = structs.replace(options, dead_queue=target)
                await broker.update(known[options.name])
        return known

    async def _check_limits(self) -> None:
        """Refuse to work a mailbox that takes messages away while we still try."""
        for registration in self._handlers:
            attempts = registration.options.policy.allowed_attempts
            problem = await self._engine.broker.conflict(
                registration.mailbox, attempts=attempts
            )
            if problem is not None:
                raise ConfigError(problem)

    def _worker(self, registration: Registration, solitude: Solitude) -> Worker:
        handler, options = self._adapt(registration)
        source, layers = self._engine.broker.source, registration.middleware
        return Worker(
            source=around(source(registration.mailbox), layers, self._clock),
            handler=wrap(handler, layers),
            options=options,
            broker=self._engine.broker,
            letters=self._letters,
            undertaker=self._undertaker,
            ledger=self._engine.ledger,
            solitude=solitude,
            clock=self._clock,
            dice=self._dice,
            observe=self._observe,
            keys=self._keys,
        )

    def _adapt(self, registration: Registration) -> tuple[Handler, WorkerOptions]:
        function, options = registration.function, registration.options
        if registration.isolated:
            runner = ProcessRunner(
                target=f"{function.__module__}:{function.__qualname__}",
                processes=options.slots,
                time_limit=options.time_limit,
                memory_limit=registration.memory_limit,
                clock=self._clock,
                guard=self._guard,
            )
            self._runners.append(runner)
            # The runner keeps the time itself: it can really stop a handler.
            return runner, structs.replace(options, time_limit=None)
        adapted = typed(function)
        if is_async(function):
            return adapted, options
        threads = started_threads(options.slots, options.consumer)
        self._threads.append(threads)
        return as_async(adapted, threads), structs.replace(options, on_threads=True)

    def _consumer(
        self,
        handler: LetterHandler,
        solitude: Solitude,
        queues: Mapping[str, QueueOptions],
    ) -> DLQConsumer:
        users = [q.name for q in queues.values() if q.dead_queue == handler.mailbox]
        return DLQConsumer(
            source=self._engine.broker.source(handler.mailbox),
            handler=handler.function,
            solitude=solitude,
            clock=self._clock,
            dice=self._dice,
            observe=self._observe,
            keys=self._keys,
            dead_queue_of=users,
            **handler.options,
        )


def slots_for(function: Callable[..., Any], slots: int | None, default: int) -> int:
    """How many handlers run at once unless told otherwise."""
    if slots is not None:
        return slots
    return default if is_async(function) else THREADS


def _with_dead_queue(
    registration: Registration, queues: dict[str, QueueOptions]
) -> Registration:
    """The mailbox's own dead-letter mailbox counts where the policy names none."""
    options = registration.options
    own = queues[registration.mailbox].dead_queue
    if options.policy.dead_queue is not None or own is None:
        return registration
    policy = structs.replace(options.policy, dead_queue=own)
    return structs.replace(
        registration, options=structs.replace(options, policy=policy)
    )
