"""One test of an App: send, settle, and look at what became of it."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from contextvars import copy_context
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from msgspec import structs

from deadletter.core.campaign import Campaign
from deadletter.core.errors import ConfigError
from deadletter.core.events import Buried, Event, Observer
from deadletter.core.letter import OPEN, By, DeadLetter
from deadletter.core.message import Message, limit_header
from deadletter.core.packing import read
from deadletter.core.query.ast import Node, Op, Term
from deadletter.core.text import clean, many
from deadletter.handler_registry import HandlerRegistry
from deadletter.home import Home
from deadletter.office.office import Office
from deadletter.office.replays import ReplayRequest
from deadletter.runtime.loop_factory import LoopFactory
from deadletter.runtime.loop_group import Loop
from deadletter.runtime.outgoing import SendOptions
from deadletter.runtime.sweep import Sweep
from deadletter.runtime.worker import Worker
from deadletter.stores.memory.queue import MemoryBroker, Row
from deadletter.testing.jumping_clock import JumpingClock
from deadletter.wiring.engines import default_settings
from deadletter.wiring.serving import read_rules

from .leftovers import NotSettled, table
from .stage import Raised, Sent, Stage

T = TypeVar("T")

PATIENCE: Final = 86_400.0  # seconds of the clock
WITHIN: Final = 10.0  # real seconds
_TURNS: Final = 60  # of the event loop, after which nothing moves any more by itself
_TICK: Final = 0.001  # real seconds between two looks at handlers that run
_SWEEP: Final = 60.0  # seconds of the clock
_HELD: Final = timedelta(minutes=15)  # of the clock, for a brake to close
_ENDING: Final = 10.0  # real seconds for the workers to end
_BY: Final = By("test", "replayed by a test")


class MessageOptions(SendOptions, total=False):
    """Options of a message, each as in `App.send`."""

    delay: float | timedelta
    at: datetime | None


class AppTest:
    """
    A test of an App, from `async with app.testing() as t`.

    The handlers run as they do in production, with their policies, middleware, classifiers,
    brakes and idempotency. Time stands still, except while a handler runs or `settled` waits.
    """

    def __init__(
        self,
        app: HandlerRegistry,
        home: Home,
        observe: Observer,
        *,
        seed: int = 0,
        brake: bool = True,
    ) -> None:
        self.clock: JumpingClock
        self._app = app
        self._home = home
        self._observe = observe
        self._seed = seed
        self._brake = brake
        self._stage: Stage
        self._broker: MemoryBroker
        self._office: Office
        self._stop: asyncio.Event
        self._working: asyncio.Task[None]
        self._replaying: set[asyncio.Task[Campaign]] = set()
        self._loops: list[Loop] = []
        self._sweep: Sweep | None = None
        self._settling: asyncio.Lock
        self._stack = AsyncExitStack()

    @property
    def sent(self) -> list[Sent]:
        """Return the messages that handlers sent, in order."""
        return self._stage.sent

    @property
    def raised(self) -> list[Raised]:
        """Return the errors that handlers raised, in order."""
        return self._stage.raised

    @property
    def events(self) -> list[Event]:
        """Return what happened, as the observer of the App is told."""
        return self._stage.events

    async def send(self, mailbox: str, body: object, **options: Unpack[MessageOptions]) -> str:
        """Send a message and return its id; the options are those of `App.send`."""
        send, _ = self._app.sends
        await self.clock.settled()  # what became due by `advance` comes first
        with self._home.using(self._stage):
            return await send(mailbox, body, **options)

    async def send_file(self, file: str | Path) -> str:
        """Send the message of a file that `dlq repro` wrote, for one attempt; return its id."""
        mailbox, message = read(await asyncio.to_thread(Path(file).read_bytes))
        headers = (*message.headers, *limit_header(1))
        message = structs.replace(message, headers=headers, sent_at=self.clock.now())
        await self._broker.sink(mailbox).send([message])
        return message.id

    async def settled(
        self, patience: float | timedelta | None = None, *, within: float = WITHIN
    ) -> None:
        """
        Wait until no message is due, running or scheduled; the clock jumps to what is next.

        Messages in mailboxes without a handler are left alone. Raises NotSettled, with a table
        of what is left, when a handler takes too long, when a brake holds messages back, or
        when a message is still to be retried after a day.

        Args:
            patience: Seconds of the clock, or a timedelta: what is due later is left alone,
                retries as well (default: a day, in which all retries must end).
            within: Real seconds that this may take (default 10).
        """
        seconds = PATIENCE if patience is None else patience
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        async with self._settling:
            until, deadline = self.clock.monotonic() + seconds, time.monotonic() + within
            while await self._step(until):
                if time.monotonic() >= deadline:
                    why = f"settled() took longer than {within:g} real seconds"
                    raise self._not_settled(self._open_rows(), why)
                if self._is_held_back():
                    why = "a brake holds them back, and no probe succeeds"
                    raise self._not_settled(self._open_rows(), why)
            now = self.clock.now()
            rows = self._open_rows()
            if due := [(name, row) for name, row in rows if row.due <= now]:
                raise self._not_settled(due, "they are due, and nothing takes them")
            if patience is None and (late := [(name, row) for name, row in rows if row.attempts]):
                raise self._not_settled(late, "they are still to be retried after a day")

    def letters(self, mailbox: str | None = None) -> list[DeadLetter]:
        """Return the dead letters of a mailbox, or all, in the order in which they died."""
        query: str | Node = "" if mailbox is None else Term("source", Op.IS, (mailbox,))
        return _now(self._letters(query))

    def letter(self, mailbox: str | None = None) -> DeadLetter:
        """Return the only dead letter; raise AssertionError if there is none, or another one."""
        found = self.letters(mailbox)
        if len(found) != 1:
            where = "" if mailbox is None else f" in {mailbox!r}"
            raise AssertionError(
                "\n".join([f"expected one letter{where}, found {len(found)}", *_lines(found)])
            )
        return found[0]

    def no_letters(self, mailbox: str | None = None) -> None:
        """Raise AssertionError if there are open letters, with the latest error of a handler."""
        found = [letter for letter in self.letters(mailbox) if letter.head.state in OPEN]
        if not found:
            return
        died = {(letter.head.source, letter.head.message_id) for letter in found}
        causes = [one.error for one in self.raised if (one.mailbox, one.message_id) in died]
        text = "\n".join([f"expected no letters, found {len(found)}", *_lines(found)])
        raise AssertionError(text) from (causes[-1] if causes else None)

    def messages(self, mailbox: str) -> list[Message]:
        """Return the messages in a mailbox: waiting, scheduled or being handled."""
        return [row.message for row in self._rows(mailbox)]

    async def replay(self, query: str = "", *, to: str | None = None) -> Campaign:
        """
        Replay the letters that a search finds, settle, and return the finished replay.

        Args:
            query: A search, as in `dlq list` (default: all letters).
            to: Another mailbox than each letter's own (default: None).
        """
        replays = self._office.replays
        chosen = await self._office.choose(query)
        campaign = await replays.begin(ReplayRequest(chosen=chosen, by=_BY, to=to))
        sending = self._task(replays.run(campaign.id))
        self._replaying.add(sending)
        try:
            await self.settled()
        finally:
            self._replaying.discard(sending)
            sending.cancel()
            await asyncio.wait({sending})
        return await replays.status(campaign.id)

    async def office(self) -> Office:
        """Return the office of the test: search, edit and review letters as `dlq` does."""
        return self._office

    async def open(self) -> Stage:
        """Make the engine of the test; `start` runs the handlers on it."""
        self._stage = stage = Stage(self._observe, seed=self._seed)
        self._stack.callback(stage.clock.close)
        self.clock = stage.clock
        self._settling = asyncio.Lock()
        self._stop = asyncio.Event()
        self._broker = await stage.broker()
        self._office = Office(await stage.engine(), stage.clock, stage.dice)
        return stage

    async def start(self) -> None:
        """Run start-up hooks and handlers, in the current context."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._working = self._task(self._work(started))
        try:
            await started
        except BaseException:
            await self.end()
            raise

    async def end(self, error: BaseException | None = None) -> None:
        """Stop the handlers and run shutdown hooks; a failure is told of the dead letters."""
        if error is not None and (letters := self.letters()):
            error.add_note("\n".join(["Dead letters of this test:", *_lines(letters)]))
        self._stop.set()
        async with self._stack:
            with self.clock.busy():
                _, late = await asyncio.wait({self._working}, timeout=_ENDING)
                for task in late:
                    task.cancel()
                await asyncio.wait({self._working})
            if not late and not self._working.cancelled():
                self._working.result()

    async def __aenter__(self) -> Self:
        stage = await self.open()
        self._stack.enter_context(self._home.replaced(stage))
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.end(error)

    async def _work(self, started: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                with self.clock.busy():
                    await stack.enter_async_context(self._app.running())
                    factory = await self._factory()
                    stack.push_async_callback(factory.close)
                    loops = await factory.build()
                self._sweep = next(loop for loop in loops if isinstance(loop, Sweep))
                self._loops = [loop for loop in loops if loop is not self._sweep]
                sweeping = asyncio.create_task(self._sweeping(self._sweep))
                stack.callback(sweeping.cancel)
                async with asyncio.TaskGroup() as group:
                    for loop in self._loops:
                        group.create_task(loop.run(self._stop))
                    started.set_result(None)
        except BaseException as error:
            if started.done() or isinstance(error, asyncio.CancelledError):
                raise
            started.set_exception(error)

    async def _factory(self) -> LoopFactory:
        stage, app = self._stage, self._app
        rules = app.rules or read_rules(default_settings().rules)  # as `dlq work` does
        return LoopFactory(
            await stage.engine(),
            await stage.letters(),
            handlers=[stage.watched(one, brake=self._brake) for one in app.registrations(rules)],
            letter_handlers=[stage.watched_letters(one) for one in app.letter_handlers()],
            clock=stage.clock,
            dice=stage.dice,
            observe=stage.observe,
            version=app.version,
        )

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        context = self.clock.under(copy_context())
        return asyncio.get_running_loop().create_task(work, context=context)

    async def _step(self, until: float) -> bool:
        """Let what is next happen; return whether there was anything."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if self._working.done():
            self._working.result()
            raise ConfigError("this test has ended: call settled() inside of its `with` block")
        rows, now = self._open_rows(), self.clock.now()
        if self.clock.is_moving or any(row.token is not None for _, row in rows):
            await asyncio.sleep(_TICK)
            return True
        is_due = any(row.due <= now for _, row in rows)
        if is_due or not all(task.done() for task in self._replaying):
            return self._jump(self.clock.next_timer, until)
        if self._sweep is not None and await self._sweep.once():
            return True
        begun = now - timedelta(seconds=self.clock.monotonic())
        due = min(((row.due - begun).total_seconds() for _, row in rows), default=None)
        return self._jump(due, until)

    async def _sweeping(self, sweep: Sweep) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            await sweep.once()

    def _is_held_back(self) -> bool:
        """Return whether a brake has been open for long."""
        workers = [loop for loop in self._loops if isinstance(loop, Worker)]
        since = [worker.presence().brake_since for worker in workers]
        latest = self.clock.now() - _HELD
        return any(opened is not None and opened < latest for opened in since)

    def _jump(self, when: float | None, until: float) -> bool:
        if when is None or when > until:
            return False
        self.clock.jump_to(when)
        return True

    def _open_rows(self) -> list[tuple[str, Row]]:
        """Return the messages that handlers of the App have still to handle."""
        handled = [one.mailbox for one in self._app.registrations()]
        handled += [one.mailbox for one in self._app.letter_handlers()]
        return [(name, row) for name in handled for row in self._rows(name)]

    def _rows(self, mailbox: str) -> list[Row]:
        rows = self._broker.box(mailbox).rows.values()
        return sorted(rows, key=lambda row: (row.due, row.seq))

    def _not_settled(self, rows: Sequence[tuple[str, Row]], why: str) -> NotSettled:
        complaints = {
            loop.name: text
            for loop in self._loops
            if isinstance(loop, Worker) and (text := loop.ready() or loop.note())
        }
        if self._is_held_back():
            complaints["hint"] = "app.testing(brake=False) runs the handlers without brakes"
        return NotSettled(table(rows, self.clock.now(), complaints, why))

    async def _letters(self, query: str | Node) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        async for heads in self._office.letters.select(query):
            found += [await self._office.letters.get(head.id) for head in heads]
        deaths = [event.letter_id for event in self.events if isinstance(event, Buried)]
        turn = {letter_id: number for number, letter_id in enumerate(deaths)}
        return sorted(found, key=lambda letter: turn.get(letter.id, -1))


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Run what an engine in memory does without waiting for anything."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise AssertionError("the engine in memory had to wait: this is a defect of deadletter")


def _lines(letters: Sequence[DeadLetter]) -> list[str]:
    return [
        clean(
            f"  {head.source}  {head.message_id}  {many(head.attempts, 'attempt')}"
            f"  {head.error_name}: {head.error_text}"
        )
        for head in (letter.head for letter in letters)
    ]
