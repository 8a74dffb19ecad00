"""The stand-in of an App's engine in a test, and what it records."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import ConfigError
from deadletter.core.events import Event, Observer
from deadletter.core.message import Delivery, Message
from deadletter.home import Home
from deadletter.observe.observers import fan_out
from deadletter.ports import Engine, LetterStore, Sink
from deadletter.runtime.handlers import JSON, Handler
from deadletter.runtime.registration import LetterHandler, Registration
from deadletter.stores.memory.queue import MemoryBroker
from deadletter.testing.jumping_clock import JumpingClock
from deadletter.testing.virtual_time import SeededDice
from deadletter.wiring.engines import open_engine

T = TypeVar("T")

_LEASE: Final = 1e9  # seconds: no other worker is there that could take a message over
_GRACE: Final = 1.0  # seconds for handlers that run when the test ends

_handling: ContextVar[str | None] = ContextVar("deadletter_handling", default=None)


class Sent(Struct, frozen=True, kw_only=True):
    """A message that a handler sent."""

    mailbox: str
    message: Message
    delay: float = 0.0
    handler: str = ""  # the mailbox of the handler

    @property
    def value(self) -> Any:
        """The body: decoded if it is JSON, text if it is text, else bytes."""
        if self.message.content_type == JSON:
            return msgspec.json.decode(self.message.body)
        is_text = self.message.content_type == "text/plain"
        return self.message.body.decode() if is_text else self.message.body


class Raised(Struct, frozen=True, kw_only=True):
    """An error that a handler raised."""

    mailbox: str
    message_id: str
    attempt: int
    error: Exception


class Stage(Home):
    """An engine in memory, with a clock that jumps; it takes the place of an App's engine."""

    def __init__(self, observe: Observer, *, seed: int) -> None:
        self.clock: JumpingClock
        self.loop = asyncio.get_running_loop()
        clock = JumpingClock()
        super().__init__(self._open, clock, SeededDice(str(seed), clock))
        self.clock = clock
        self.sent: list[Sent] = []
        self.raised: list[Raised] = []
        self.events: list[Event] = []
        self.observe = fan_out(self.events.append, observe)

    async def engine(self) -> Engine:
        """Return the engine; raise ConfigError in another event loop than the test's."""
        if asyncio.get_running_loop() is not self.loop:
            raise ConfigError(
                "this App is in a test that runs in another event loop: use `t` of the test,"
                " or send messages only"
            )
        return await super().engine()

    async def letters(self) -> LetterStore:
        """Return the letters of the test."""
        letters = (await self.engine()).letters
        assert letters is not None
        return letters

    async def broker(self) -> MemoryBroker:
        """Return the mailboxes of the test."""
        broker = (await self.engine()).broker
        assert isinstance(broker, MemoryBroker)
        return broker

    async def sink(self, mailbox: str) -> Sink:
        """Return the way into a mailbox, also from another event loop."""
        return _RecordingSink(self, mailbox)

    async def close(self) -> None:
        """Do nothing: the engine lasts as long as the test."""

    def watched(self, registration: Registration, *, brake: bool) -> Registration:
        """Return the registration of a handler as the test runs it."""
        options = structs.replace(registration.options, lease=_LEASE, grace=_GRACE)
        if not brake:
            options = structs.replace(options, brake=None)
        return structs.replace(
            registration,
            options=options,
            isolated=False,  # a process of its own would know nothing of the test
            memory_limit=None,
            middleware=(self._watch, *registration.middleware),
        )

    def watched_letters(self, handler: LetterHandler) -> LetterHandler:
        """Return a handler of letters as the test runs it."""
        function, mailbox = handler.function, handler.mailbox
        if iscoroutinefunction(function):

            @wraps(function)
            async def handling(letter: Any) -> Any:
                _handling.set(mailbox)
                with self.clock.busy():
                    return await function(letter)

            return structs.replace(handler, function=handling)

        @wraps(function)
        def handling_on_thread(letter: Any) -> Any:
            _handling.set(mailbox)
            return function(letter)

        return structs.replace(handler, function=handling_on_thread)

    async def hop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something in the event loop of the test."""
        if asyncio.get_running_loop() is self.loop:
            return await work()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self.loop))

    async def _open(self) -> Engine:
        return await open_engine("memory://", clock=self.clock, dice=self.dice)

    def _watch(self, handler: Handler) -> Handler:
        async def run(delivery: Delivery) -> object:
            _handling.set(delivery.mailbox)
            with self.clock.busy():
                try:
                    return await handler(delivery)
                except Exception as error:
                    self.raised.append(
                        Raised(
                            mailbox=delivery.mailbox,
                            message_id=delivery.message.id,
                            attempt=delivery.attempt,
                            error=error,
                        )
                    )
                    raise

        return run


class _RecordingSink:
    """The way into one mailbox, which remembers what handlers send."""

    def __init__(self, stage: Stage, mailbox: str) -> None:
        self.mailbox = mailbox
        self._stage = stage

    async def send(self, messages: Sequence[Message], *, delay: float = 0.0) -> None:
        """Send all or none."""
        stage, handler = self._stage, _handling.get()

        async def sending() -> None:
            await (await stage.broker()).sink(self.mailbox).send(messages, delay=delay)

        await stage.hop(sending)
        if handler is not None:
            stage.sent += [
                Sent(mailbox=self.mailbox, message=message, delay=delay, handler=handler)
                for message in messages
            ]
