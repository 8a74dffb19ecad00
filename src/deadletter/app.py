"""
The application of a consumer developer: its handlers, and the engine they run on.

    app = App("sqlite:///shop.db")

    @app.handler("orders", max_attempts=5)
    async def charge(order: Order) -> None: ...

    await charge.send(Order(id="o-1", amount=42))
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar

from deadletter.core.brake import BrakePolicy
from deadletter.core.errors import ConfigError
from deadletter.core.events import Observer
from deadletter.core.message import Delivery, Message
from deadletter.core.policy import DLQPolicy
from deadletter.observe.observers import fan_out
from deadletter.office.office import Office
from deadletter.runtime.handlers import Middleware, can_read
from deadletter.runtime.health import DEPTH_THRESHOLD, Exposition, open_letters
from deadletter.runtime.lifeline import progress_observers
from deadletter.runtime.loop_factory import LoopFactory, call_handler
from deadletter.runtime.loop_group import EndDeadline, Loop, LoopGroup
from deadletter.runtime.outgoing import Item, SendOptions, due_in, new_message, new_messages
from deadletter.runtime.presence import presence_loops
from deadletter.runtime.registration import BRAKE, check_bodies, check_mailbox, select
from deadletter.wiring.chores import anchoring, indexing, tidying_deaths
from deadletter.wiring.engines import check_url, default_settings, key_ring, open_engine
from deadletter.wiring.foreign import Ways, intakes
from deadletter.wiring.lending import sink_within

from .handler_registry import HandlerRegistry, Lifespan
from .home import Home
from .ports import Clock, Dice, Engine, LetterStore, Sink, loss_of
from .settings import OfficeDurability
from .system import SystemClock, SystemDice, process_name

if TYPE_CHECKING:
    from .harness import Testing

Function = TypeVar("Function", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")
Sending: TypeAlias = Callable[[Sink, Clock], Sink]
"""Wraps the sink that an App sends through."""


class App(HandlerRegistry):
    """
    Handlers by mailbox, and the engine they run on.

    Nothing is opened before it is needed.

    Args:
        url: The engine that carries the messages, such as "sqlite:///shop.db" (default:
            `url` of the settings, DLQ_URL).
        office: The engine that keeps the dead letters (default: the same engine, or
            `office` of the settings).
        office_durability: "power-safe", "kill-safe" or "none": what the office must survive
            at least (default: as the settings say, else "power-safe").
        version: The version of your application; letters and groups carry it (default "").
        policy: The policy of handlers that have none of their own (default: DLQPolicy()).
        middleware: Middleware around every handler, outside of its own (default: none).
        brake: The brake of handlers that have none of their own; None for no brake
            (default: BrakePolicy()).
        slots: Handlers running at once per mailbox, where a handler says nothing (default:
            200 async, 16 sync). Handlers with isolation="process" have 2 processes.
        lifespan: A function of the App that returns an async context manager, entered before
            the first message is taken and left after the last handler (default: None).
        observe: A function that is called with every event (default: None).
        sending: A function that wraps the sink of every mailbox, for tracing (default: None).
        clock: Another clock, for tests (default: the system's).
        dice: Another source of chance and ids, for tests (default: the system's).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        office: str | None = None,
        office_durability: OfficeDurability | None = None,
        version: str = "",
        policy: DLQPolicy | None = None,
        middleware: Sequence[Middleware] = (),
        brake: BrakePolicy | None = BRAKE,
        slots: int | None = None,
        lifespan: Lifespan | None = None,
        observe: Observer | None = None,
        sending: Sending | None = None,
        clock: Clock | None = None,
        dice: Dice | None = None,
    ) -> None:
        for given in (url, office):  # raises where the URL is written
            if given is not None:
                check_url(given)
        super().__init__(
            version=version,
            policy=policy,
            middleware=middleware,
            brake=brake,
            slots=slots,
            lifespan=lifespan,
            send=self.send,
            send_many=self.send_many,
        )
        self.url = url or default_settings().url
        self.observe: Observer = observe or (lambda event: None)
        self.sending = sending
        self.office_url = office or (None if url else default_settings().office)
        self.office_durability = office_durability  # None: as the settings say
        self._own = Home(self._open, clock or SystemClock(), dice or SystemDice())
        self._ending = EndDeadline()

    async def send(
        self,
        mailbox: str,
        body: object,
        *,
        id: str | None = None,
        key: str | None = None,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        expires_in: float | timedelta | None = None,
        idempotency_key: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content_type: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
        connection: object = None,
    ) -> str:
        """
        Send a message and return its id, once the broker has stored it.

        Args:
            mailbox: The mailbox to send to.
            body: Bytes, text, or anything that can be JSON: a Struct, dataclass, TypedDict,
                dict, list or pydantic model.
            id: The id of the message (default: a new UUID, version 7).
            key: Messages of one key are replayed in their order (default: None).
            delay: Seconds, or a timedelta, until it may be received (default 0).
            at: The time from which it may be received, with a time zone; a time in the past
                sends it now (default: None). Cannot be combined with `delay`.
            max_attempts: Attempts for this message, 1 to 1000, instead of the limit in the
                policy of its handler (default: None, the policy's).
            expires_in: Seconds, or a timedelta, after which it is no longer handled
                (default: None, never).
            idempotency_key: What `idempotent` handlers handle once (default: None, its id).
            reply_to: The mailbox for what the handler returns (default: None).
            headers: Headers of your own; names that begin with `dlq-` are reserved
                (default: none).
            content_type: The type of the body (default: by the body).
            traceparent: W3C trace context to continue (default: None).
            tracestate: W3C trace state (default: None).
            connection: Your own connection to the database of the mailbox, PostgreSQL or
                SQLite: the message is sent if, and only if, its transaction commits
                (default: None, sent at once).
        """
        check_mailbox(mailbox)
        home = self._home
        now = home.clock.now()
        options = SendOptions(
            key=key,
            max_attempts=max_attempts,
            expires_in=expires_in,
            idempotency_key=idempotency_key,
            reply_to=reply_to,
            headers=headers,
            content_type=content_type,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        message = new_message(body, options, id=home.dice.new_id() if id is None else id, now=now)
        due = due_in(delay, at, now)
        await (await self._sink(mailbox, home, connection)).send([message], delay=due)
        return message.id

    async def send_many(
        self,
        mailbox: str,
        items: Iterable[Item],
        *,
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        max_attempts: int | None = None,
        connection: object = None,
    ) -> list[str]:
        """
        Send many messages at once, all of them or none, and return their ids in order.

        Args:
            mailbox: The mailbox to send to.
            items: Bodies, Messages, or pairs of a body and a dict of options, in any mix.
                A pair looks like `(order, {"key": "c-7", "max_attempts": 3})`; the options
                are those of `send` except `delay` and `at`.
            delay: Seconds, or a timedelta, until they may be received (default 0).
            at: The time from which they may be received, as in `send` (default: None).
            max_attempts: Attempts for each message that has no limit of its own, 1 to 1000
                (default: None, the policy's).
            connection: Your own connection, in whose transaction they are sent, as in `send`
                (default: None, sent at once).
        """
        check_mailbox(mailbox)
        check_bodies(items)
        home = self._home
        now = home.clock.now()
        due = due_in(delay, at, now)
        messages = new_messages(
            items, max_attempts=max_attempts, now=now, new_ids=home.dice.new_ids
        )
        await (await self._sink(mailbox, home, connection)).send(messages, delay=due)
        return [message.id for message in messages]

    @property
    def _home(self) -> Home:
        return self._own.here()

    async def _sink(self, mailbox: str, home: Home, connection: object) -> Sink:
        if connection is None or home is not self._own:  # tests send at once, see `testing`
            sink = await home.sink(mailbox)
        else:
            sink = sink_within(await home.engine(), mailbox, connection)
        return sink if self.sending is None else self.sending(sink, home.clock)

    def check_only(self, only: Collection[str] | None) -> frozenset[str]:
        """Return the mailboxes that `work(only=…)` runs; raise ConfigError for unknown ones."""
        return select([*self._handlers, *self._letter_handlers], only)

    async def handle(self, mailbox: str, message: Message) -> object:
        """
        Hand a message to the handler of a mailbox, here and now; what it answers.

        For tests: nothing is received, tried again or kept, and what the handler
        raises is raised. It runs in this process, without its middleware.
        """
        if mailbox not in self._handlers:
            raise ConfigError(f"mailbox {mailbox!r} has no handler")
        return await call_handler(
            self._handlers[mailbox].function,
            Delivery(message=message, mailbox=mailbox),
            self._home.clock,
        )

    def fits(self, mailbox: str, message: Message) -> bool:
        """Return whether the handler of a mailbox can read a message; True if it has none."""
        if mailbox not in self._handlers:
            return True
        delivery = Delivery(message=message, mailbox=mailbox)
        return can_read(self._handlers[mailbox].function, delivery)

    async def work(
        self,
        stop: asyncio.Event | None = None,
        *,
        only: Collection[str] | None = None,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
        watchdog: float | None = 720.0,
        install_signals: bool = False,
    ) -> int:
        """
        Run the handlers until `stop` is set; return 0 when everything ended well.

        Raises ConfigError when a start-up hook fails, before any message is taken, and
        StoreLost when the store is removed while the handlers run.

        Args:
            stop: Ends the work when it is set (default: None, runs until a signal).
            only: Run the handlers of these mailboxes only, and drain nothing (default: all).
            health_port: Answer health probes on this port (default: None, no probes).
            health_host: The address of that port (default "127.0.0.1").
            depth_threshold: Open letters from which /health/dlq is degraded (default 100).
            metrics: Returns the metrics that Prometheus reads at /metrics (default: None).
            watchdog: Seconds without a sign of life after which the process is ended; None
                for never (default 720).
            install_signals: Stop on SIGTERM and SIGINT (default False).
        """
        run = self.check_only(only)
        engine, letters = await self.engine(), await self.letters()
        clock, dice = self._home.clock, self._home.dice
        progress = progress_observers() if install_signals else ()
        observe = fan_out(self.observe, *progress)  # errors of one observer stay its own
        handlers = self.registrations(self.rules)
        factory = LoopFactory(
            engine,
            letters,
            handlers=[one for one in handlers if one.mailbox in run],
            letter_handlers=[one for one in self.letter_handlers() if one.mailbox in run],
            idle=[one for one in handlers if one.mailbox not in run],
            clock=clock,
            dice=dice,
            observe=observe,
            version=self.version,
            ring=key_ring(letters),
        )
        dead = self._dead if only is None else []
        async with self.running(), AsyncExitStack() as stack:
            loops: list[Loop] = []
            if run or not dead:
                stack.push_async_callback(factory.close)
                loops += await factory.build()
            loops += await intakes(
                stack,
                dead,
                letters,
                clock=clock,
                dice=dice,
                observe=observe,
                ways=Ways(default_settings().source_urls, clock=clock),
            )
            settings = default_settings()
            loops += indexing(letters, settings.index_bodies, clock=clock, observe=observe)
            loops += tidying_deaths(letters, clock=clock, observe=observe)
            loops += anchoring(letters, settings.anchors, clock=clock, observe=observe)
            loops += presence_loops(
                letters,
                loops,
                name=process_name(),
                version=self.version,
                clock=clock,
                dice=dice,
                observe=observe,
            )
            group = LoopGroup(
                loops,
                clock=clock,
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
        only: Collection[str] | None = None,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        depth_threshold: int = DEPTH_THRESHOLD,
        metrics: Exposition | None = None,
        watchdog: float | None = 720.0,
    ) -> int:
        """Run the handlers in this process until a signal stops it; arguments as in `work`."""

        async def working() -> int:
            async with self:
                return await self.work(
                    only=only,
                    health_port=health_port,
                    health_host=health_host,
                    depth_threshold=depth_threshold,
                    metrics=metrics,
                    watchdog=watchdog,
                    install_signals=True,
                )

        with self._ending:  # closing has to be over in time as well
            return asyncio.run(working())

    def testing(self, *, seed: int = 0, brake: bool = True) -> "Testing":
        """
        Run the handlers of this App in a test, on an engine in memory.

        Use it as `async with app.testing() as t` or, without awaiting anything, as
        `with app.testing() as t`. Until the block ends, everything that the test and its
        handlers send with this App goes there. The engine of the App is never opened.

        Args:
            seed: Decides chance, such as the jitter of backoffs, and ids (default 0).
            brake: False runs the handlers without their brakes (default True).
        """
        from .harness import Testing  # noqa: PLC0415 -- production does without

        return Testing(self, self._own, self.observe, seed=seed, brake=brake)

    async def engine(self) -> Engine:
        """
        Return the engine with its office, and open it when it is first needed.

        It is opened again in a forked process, and in a later event loop.
        """
        return await self._home.engine()

    async def _open(self) -> Engine:
        return await open_engine(
            self.url,
            office=self.office_url,
            office_durability=self.office_durability,
            clock=self._own.clock,
            dice=self._own.dice,
        )

    async def letters(self) -> LetterStore:
        """Return the store of dead letters."""
        letters = (await self.engine()).letters
        assert letters is not None  # an engine without is never opened alone
        return letters

    async def office(self) -> Office:
        """
        Return the office: search, review, edit and replay letters as `dlq` does.

        It works for as long as the App is open in this event loop.
        """
        engine, settings = await self.engine(), default_settings()
        clock, dice = self._home.clock, self._home.dice
        return Office(
            engine,
            clock,
            dice,
            ring=key_ring(await self.letters()),
            servers=Ways(settings.source_urls, clock=clock, home=self.url),
            fits=self.fits,
            presume_after=settings.presume_after,
            alerts=settings.alerts,
        )

    async def close(self) -> None:
        """Close what was opened."""
        await self._home.close()

    async def __aenter__(self) -> Self:
        await self.engine()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _patience(self) -> float:
        """Return the seconds to wait for all loops to end by themselves."""
        graces = [r.options.grace for r in self._handlers.values()]
        return max(graces, default=0.0) + 10.0
