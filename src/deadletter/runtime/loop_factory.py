"""Builds the loops of one process from what was registered: workers, consumers, the sweep."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from msgspec import structs

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.events import Observer
from deadletter.core.message import Delivery
from deadletter.ports import PROCESS_KEYS, Clock, Dice, Engine, KeyRing, LetterStore, QueueOptions

from .deliveries import ClaimedDelivery, ExclusiveGate
from .dlq_consumer import DLQConsumer
from .handlers import Context, Handler, around, as_async, is_async, started_threads, typed, wrap
from .isolation import OrphanGuard, ProcessRunner
from .loop_group import Loop
from .registration import LetterHandler, Registration, WorkerOptions
from .sweep import Sweep
from .worker import Worker


class LoopFactory:
    """
    Builds the loops of one process, and closes what they share.

    `idle` are handlers that other processes run: the sweep knows their policies.
    """

    def __init__(
        self,
        engine: Engine,
        letters: LetterStore,
        *,
        handlers: Sequence[Registration],
        letter_handlers: Sequence[LetterHandler],
        idle: Sequence[Registration] = (),
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
        self._atomic_burial = engine.atomic_burial if is_own else None
        self._handlers = handlers
        self._letter_handlers = letter_handlers
        self._idle = idle
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._version = version
        self._ring = ring or KeyRing(letters)
        self._keys = PROCESS_KEYS
        self._threads: list[ThreadPoolExecutor] = []
        self._runners: list[ProcessRunner] = []
        self._guard = OrphanGuard()

    async def build(self) -> list[Loop]:
        """Return the loops, ready to run; create mailboxes that do not exist yet."""
        if not self._handlers and not self._letter_handlers:
            raise ConfigError('the App has no handler: register one with @app.handler("…")')
        self._keys = await self._ring.keys()
        queues = await self._declare()
        await self._check_limits()
        gate = ExclusiveGate()
        loops: list[Loop] = []
        policies = {one.mailbox: one.options.policy for one in self._idle}
        for registration in self._handlers:
            registered = _with_dead_queue(registration, queues)
            policies[registered.mailbox] = registered.options.policy
            loops.append(self._worker(registered, gate))
        loops.extend(self._consumer(handler, gate, queues) for handler in self._letter_handlers)
        for runner in self._runners:  # what cannot be loaded is found here
            await runner.start()
        loops.append(
            Sweep(
                broker=self._engine.broker,
                letters=self._letters,
                atomic_burial=self._atomic_burial,
                ledger=self._engine.ledger,
                policies=policies,
                gate=gate,
                clock=self._clock,
                dice=self._dice,
                observe=self._observe,
                interval=min(1.0, *(r.options.lease / 4 for r in self._handlers), 1.0),
                version=self._version,
                keys=self._keys,
            )
        )
        return loops

    async def close(self) -> None:
        """End the threads and processes that handlers ran in."""
        for runner in self._runners:
            await runner.close()
        self._guard.close()
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _declare(self) -> dict[str, QueueOptions]:
        """Create the mailboxes that are needed, their dead-letter mailboxes first."""
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
        """Raise ConfigError if a broker would move messages away while attempts are left."""
        for registration in self._handlers:
            attempts = registration.options.policy.allowed_attempts
            problem = await self._engine.broker.conflict(registration.mailbox, attempts=attempts)
            if problem is not None:
                raise ConfigError(problem)

    def _worker(self, registration: Registration, gate: ExclusiveGate) -> Worker:
        handler, options = self._adapt(registration)
        source, layers = self._engine.broker.source, registration.middleware
        return Worker(
            source=around(source(registration.mailbox), layers, self._clock),
            handler=wrap(handler, layers),
            options=options,
            broker=self._engine.broker,
            letters=self._letters,
            atomic_burial=self._atomic_burial,
            ledger=self._engine.ledger,
            gate=gate,
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
        self, handler: LetterHandler, gate: ExclusiveGate, queues: Mapping[str, QueueOptions]
    ) -> DLQConsumer:
        users = [q.name for q in queues.values() if q.dead_queue == handler.mailbox]
        return DLQConsumer(
            source=self._engine.broker.source(handler.mailbox),
            handler=handler.function,
            gate=gate,
            clock=self._clock,
            dice=self._dice,
            observe=self._observe,
            keys=self._keys,
            dead_queue_of=users,
            letters=self._letters,
            **handler.options,
        )


def _with_dead_queue(registration: Registration, queues: dict[str, QueueOptions]) -> Registration:
    """Return the registration with the dead queue of its mailbox where the policy has none."""
    options = registration.options
    own = queues[registration.mailbox].dead_queue
    if options.policy.dead_queue is not None or own is None:
        return registration
    policy = structs.replace(options.policy, dead_queue=own)
    return structs.replace(registration, options=structs.replace(options, policy=policy))


async def call_handler(function: Callable[..., Any], delivery: Delivery, clock: Clock) -> Any:
    """Return what a handler returns for one delivery; whatever it raises is raised."""
    handler = typed(function)
    Context(ClaimedDelivery(delivery, clock.monotonic()), clock).enter()
    if is_async(function):
        return await handler(delivery)
    return await asyncio.to_thread(handler, delivery)
