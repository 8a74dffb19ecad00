"""
What a consumer developer holds in hand.

    app = App("sqlite:///shop.db")

    @app.handler("orders", policy=DLQPolicy(max_attempts=5))
    async def charge(order: Order) -> None: ...

    await app.send("orders", Order(id="o-1", amount=42))
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, Self, TypeAlias, TypeVar

from deadletter.core.brake import BrakePolicy
from deadletter.core.dialects import Trusted
from deadletter.core.errors import ConfigError
from deadletter.core.events import Event, Observer
from deadletter.core.message import Delivery, Message, as_seconds, checked
from deadletter.core.message import sendable_headers as as_headers
from deadletter.core.policy import DLQPolicy
from deadletter.core.rule import Rule
from deadletter.observe.fan import fan_out
from deadletter.ports import Clock, Dice, Engine, LetterStore, Sink, loss_of
from deadletter.runtime.crew import Crew, LetterHandler, Registration, slots_for
from deadletter.runtime.end_deadline import EndDeadline
from deadletter.runtime.group import LoopGroup
from deadletter.runtime.handing import handed
from deadletter.runtime.handlers import Middleware
from deadletter.runtime.health import DEPTH_THRESHOLD, Exposition, open_letters
from deadletter.runtime.lifeline import progress_observers
from deadletter.runtime.loop import Loop
from deadletter.runtime.options import (
    BRAKE,
    LEDGER_TTL,
    SLOTS,
    CauseOf,
    KeyOf,
    WorkerOptions,
    check_handler,
    check_isolation,
)
from deadletter.runtime.typed import can_read, encode, typed
from deadletter.settings import OfficeDurability
from deadletter.system import SystemClock, SystemDice, process_name

from .chores import anchoring, indexing
from .engines import check_url, default_settings, key_ring, open_engine
from .foreign import Ways
from .home import Home
from .intakes import Dead, intakes

Function = TypeVar("Function", bound=Callable[..., Any])
Sending: TypeAlias = Callable[[Sink, Clock], Sink]
"""What goes around whatever an App sends through."""


class App:
    """
    Handlers by mailbox, and the engine they run on.

    Nothing is opened before it is needed. `office` names another engine for the
    letters than the one that carries the messages. It must be power-safe, unless
    `office_durability` says that "kill-safe" or "none" will do.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        office: str | None = None,
        office_durability: OfficeDurability | None = None,
        version: str = "",
        observe: Observer | None = None,
        sending: Sending | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
    ) -> None:
        self.url = url or default_settings().url
        self.version = version
        self.observe: Observer = observe or _nobody
        self.sending = sending
        self.rules: Sequence[Rule] = ()  # asked before those of any policy
        self.office_url = office or (None if url else default_settings().office)
        self.office_durability = office_durability  # None: as the settings say
        for named in filter(None, (url, office)):  # here, where they are written
            check_url(named)
        self._clock = clock or SystemClock()
        self._dice = dice or SystemDice()
        self._handlers: dict[str, Registration] = {}
        self._letter_handlers: dict[str, LetterHandler] = {}
        self._cause_of: CauseOf | None = None
        self._dead: list[Dead] = []
        self._home = Home(self._open)
        self._ending = EndDeadline()

    def handler(
        self,
        mailbox: str,
        *,
        policy: DLQPolicy | None = None,
        slots: int | None = None,
        lease: float = 60.0,
        time_limit: float | None = 900.0,
        heartbeat: float | None = None,
        grace: float = 30.0,
        brake: BrakePolicy | None = BRAKE,
        idempotent: bool | KeyOf = False,
        ledger_ttl: float = LEDGER_TTL,
        bodies_may_differ: bool = False,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
        middleware: Sequence[Middleware] = (),
    ) -> Callable[[Function], Function]:
        """
        Register a handler for a mailbox.

        Sync or async; what its first parameter is annotated with decides how the
        body is decoded. What it returns is sent to the message's `reply_to`. With
        `idempotent`, each key is worked once, and remembered for `ledger_ttl`
        seconds; a function reads the key of messages that came without one. Another
        body under a handled key becomes a letter, unless `bodies_may_differ`.
        """
        check_handler(mailbox, policy, brake, idempotent, middleware)
        check_isolation(isolation, memory_limit)
        chosen = policy or DLQPolicy()

        def register(function: Function) -> Function:
            self._claim(mailbox)
            chosen.check_mailbox(mailbox)
            typed(function)  # wrong signatures are found here, not at the first message
            options = WorkerOptions(
                policy=chosen,
                slots=slots_for(function, slots, SLOTS if not isolation else 2),
                lease=lease,
                time_limit=time_limit,
                heartbeat=heartbeat,
                grace=grace,
                brake=brake,
                idempotent=bool(idempotent),
                key_of=idempotent if callable(idempotent) else None,
                ledger_ttl=ledger_ttl,
                bodies_may_differ=bodies_may_differ,
                consumer=getattr(function, "__qualname__", mailbox),
                version=self.version,
                worker=process_name(),
            )
            self._handlers[mailbox] = Registration(
                mailbox=mailbox,
                function=function,
                options=options,
                isolated=isolation == "process",
                memory_limit=memory_limit,
                middleware=tuple(middleware),
            )
            return function

        return register

    def letter_handler(
        self,
        mailbox: str,
        *,
        wait: float = 20.0,
        interval: float = 0.0,
        visibility_timeout: float = 300.0,
        on_failure: float = 3600.0,
    ) -> Callable[[Function], Function]:
        """
        Register a handler for the letters in a dead-letter mailbox.

        It is handed each DeadLetter. A letter it fails on waits `on_failure`
        seconds and comes again; it is never dead-lettered again.
        """

        def register(function: Function) -> Function:
            self._claim(mailbox)
            self._letter_handlers[mailbox] = LetterHandler(
                mailbox=mailbox,
                function=function,
                options={
                    "wait": wait,
                    "interval": interval,
                    "visibility_timeout": visibility_timeout,
                    "on_failure": on_failure,
                },
            )
            return function

        return register

    def fingerprint(self, function: CauseOf) -> CauseOf:
        """
        Name causes yourself: letters of one mailbox and one name are one group.

        The function is given the failure and the message of each failed attempt. It
        returns the name of the cause, or None where the office should tell causes
        apart by itself. If it raises, the office does so as well.
        """
        if not callable(function):
            raise ConfigError(
                f"@app.fingerprint takes a function, got {function!r}: write it without"
                " parentheses, above a function of a failure and a message"
            )
        self._cause_of = function
        return function

    def drain(self, server: str, *places: str, sources: Sequence[str] = ()) -> None:
        """
        Take in the dead letters of others while handlers run.

        `server` is an amqp://, kafka://, nats://, redis:// or sqs:// URL; without
        places, those that can be told from others are drained. Headers may name the
        mailbox that a place is named after, and `sources`, as in `orders.*`.
        """
        self._dead.append(Dead(server, places, Trusted(tuple(sources))))

    async def send(
        self,
        mailbox: str,
        body: object,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: float = 0.0,
        expires_in: float | None = None,
        idempotency_key: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> str:
        """Send a message and return its id, once the broker has it durably."""
        data, natural = encode(body)
        message = Message(
            id=id or self._dice.new_id(),
            body=data,
            sent_at=self._clock.now(),
            headers=as_headers(headers),
            content_type=content_type or natural,
            key=key,
            expires_at=self._expiry(expires_in),
            reply_to=reply_to,
            idempotency_key=idempotency_key,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        sink = (await self.engine()).broker.sink(mailbox)
        if self.sending is not None:
            sink = self.sending(sink, self._clock)
        await sink.send([checked(message)], delay=as_seconds("delay", delay))
        return message.id

    async def send_many(
        self, mailbox: str, bodies: Iterable[object], *, delay: float = 0.0
    ) -> list[str]:
        """Send many messages at once: all of them, or none."""
        now, encoded = self._clock.now(), [encode(body) for body in bodies]
        ids = self._dice.new_ids(len(encoded))
        messages = [
            Message(id=id_, body=data, sent_at=now, content_type=natural)
            for id_, (data, natural) in zip(ids, encoded, strict=True)
        ]
        sink = (await self.engine()).broker.sink(mailbox)
        if self.sending is not None:
            sink = self.sending(sink, self._clock)
        await sink.send(messages, delay=as_seconds("delay", delay))
        return ids

    async def handle(self, mailbox: str, message: Message) -> object:
        """
        Hand a message to the handler of a mailbox, here and now; what it answers.

        For tests: nothing is received, tried again or kept, and what the handler
        raises is raised. It runs in this process, without its middleware.
        """
        if mailbox not in self._handlers:
            raise ConfigError(f"mailbox {mailbox!r} has no handler")
        return await handed(
            self._handlers[mailbox].function,
            Delivery(message=message, mailbox=mailbox),
            self._clock,
        )

    def fits(self, mailbox: str, message: Message) -> bool:
        """Tell whether the handler of a mailbox can read it; True where it has none."""
        if mailbox not in self._handlers:
            return True
        delivery = Delivery(message=message, mailbox=mailbox)
        return can_read(self._handlers[mailbox].function, delivery)

    async def work(
        self,
        stop: asyncio.Event | None = None,
        *,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
        watchdog: float | None = 720.0,
        install_signals: bool = False,
    ) -> int:
        """
        Run all handlers until `stop` is set; 0 when everything ended well.

        A process that gives no sign of life for `watchdog` seconds is ended. Probes
        are answered on `health_port`, and `metrics` shown there to Prometheus. Raises
        StoreLost when the store is taken away meanwhile.
        """
        engine, letters = await self.engine(), await self.letters()
        progress = progress_observers() if install_signals else ()
        observe = fan_out(self.observe, *progress)  # whatever it raises is its own
        crew = Crew(
            engine,
            letters,
            handlers=[
                one.asking(self.rules).naming(self._cause_of)
                for one in self._handlers.values()
            ],
            letter_handlers=list(self._letter_handlers.values()),
            clock=self._clock,
            dice=self._dice,
            observe=observe,
            version=self.version,
            ring=key_ring(letters),
        )
        async with AsyncExitStack() as stack:
            loops: list[Loop] = []
            if self._handlers or self._letter_handlers or not self._dead:
                stack.push_async_callback(crew.disband)
                loops += await crew.assemble()
            loops += await intakes(
                stack,
                self._dead,
                letters,
                clock=self._clock,
                dice=self._dice,
                observe=observe,
                ways=Ways(default_settings().source_urls, clock=self._clock),
            )
            settings = default_settings()
            loops += indexing(
                letters, settings.index_bodies, clock=self._clock, observe=observe
            )
            loops += anchoring(
                letters, settings.anchors, clock=self._clock, observe=observe
            )
            group = LoopGroup(
                loops,
                clock=self._clock,
                observe=observe,
                shutdown_timeout=self._patience(),
                health_port=health_port,
                health_host=health_host,
                depth=partial(open_letters, letters),
                depth_threshold=depth_threshold,
                metrics=metrics,
                watchdog_threshold=watchdog,
                lost=partial(loss_of, engine),
                install_signals=install_signals,
                deadline=self._ending,
            )
            return await (group.run() if stop is None else group.run_until(stop))

    def run(
        self,
        *,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
        watchdog: float | None = 720.0,
    ) -> int:
        """Run all handlers in this process until it is told to stop."""

        async def working() -> int:
            async with self:
                return await self.work(
                    health_port=health_port,
                    health_host=health_host,
                    depth_threshold=depth_threshold,
                    metrics=metrics,
                    watchdog=watchdog,
                    install_signals=True,
                )

        with self._ending:  # closing has to be over in time as well
            return asyncio.run(working())

    async def engine(self) -> Engine:
        """
        The engine with its office, opened when first needed.

        Opened again in a forked process, and in an event loop that comes after the one
        it was opened in.
        """
        return await self._home.engine()

    async def _open(self) -> Engine:
        return await open_engine(
            self.url,
            office=self.office_url,
            office_durability=self.office_durability,
            clock=self._clock,
            dice=self._dice,
        )

    async def letters(self) -> LetterStore:
        """The office."""
        letters = (await self.engine()).letters
        assert letters is not None  # an engine without is never opened alone
        return letters

    async def close(self) -> None:
        """Let go of what was opened."""
        await self._home.close()

    async def __aenter__(self) -> Self:
        await self.engine()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _patience(self) -> float:
        """How long to wait for all loops to end by themselves."""
        graces = [r.options.grace for r in self._handlers.values()]
        return max(graces, default=0.0) + 10.0

    def _claim(self, mailbox: str) -> None:
        if mailbox in self._handlers or mailbox in self._letter_handlers:
            raise ConfigError(f"mailbox {mailbox!r} has a handler already")

    def _expiry(self, expires_in: float | None) -> datetime | None:
        if expires_in is None:
            return None
        within = as_seconds("expires_in", expires_in)
        return self._clock.now() + timedelta(seconds=within)


def _nobody(event: Event) -> None:
    """The observer of an application that wants none."""
