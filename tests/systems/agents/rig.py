"""Mailboxes and loops for the tests, with all events of the loops."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, TypeVar

from agents import (
    Backend,
    BackendMailbox,
    DeadLetter,
    DLQPolicy,
    FunctionAdapter,
    LoopGroup,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Session,
)
from deadletter import NoBackoff
from deadletter.core.events import Event, Observer
from deadletter.core.letter import DeadLetter as Kept

AT_ONCE = MainLoopConfig(backoff=NoBackoff())  # else with the default configuration
Event_ = TypeVar("Event_", bound=Event)
T = TypeVar("T")


class Rig:
    """A backend with the mailboxes of a main loop."""

    def __init__(self, url: str, **options: Any) -> None:
        self.events: list[Event] = []
        self.observers: list[Observer] = [self.events.append]
        self.backend = Backend(url, observe=self._observe, **options)
        self.requests: BackendMailbox[MainLoopRequest[str], MainLoopResult[str]] = self.box(
            "requests", MainLoopRequest[str]
        )
        self.dead: BackendMailbox[DeadLetter[MainLoopRequest[str]], None] = self.box(
            "requests-dlq", DeadLetter[MainLoopRequest[str]]
        )
        self.answers: BackendMailbox[MainLoopResult[str], None] = self.box(
            "answers", MainLoopResult[str]
        )

    def box(self, name: str, body_type: Any = Any, **options: Any) -> Any:
        return BackendMailbox(name=name, client=self.backend, body_type=body_type, **options)

    def policy(self, **options: Any) -> DLQPolicy[Any, Any]:
        return DLQPolicy(mailbox=self.dead, **options)

    def loop(
        self,
        adapter: Callable[[str, Session], str],
        *,
        config: MainLoopConfig = AT_ONCE,
        **options: Any,
    ) -> MainLoop[str, str]:
        """Return a main loop, with a policy unless `dlq` is given."""
        options.setdefault("dlq", self.policy())
        return MainLoop(
            adapter=FunctionAdapter(adapter), requests=self.requests, config=config, **options
        )

    def ask(self, text: str) -> MainLoopRequest[str]:
        request = MainLoopRequest(text)
        self.requests.send(request, reply_to=self.answers)
        return request

    def answer(self, *, within: float = 15.0) -> MainLoopResult[str]:
        (message,) = self.answers.receive(wait_time_seconds=within)
        message.acknowledge()
        return message.body

    def letter(self, *, within: float = 15.0) -> DeadLetter[MainLoopRequest[str]]:
        """Return the next dead letter; it stays in its mailbox, invisible for a while."""
        (message,) = self.dead.receive(wait_time_seconds=within)
        return message.body

    def bury(self, **errors: Exception) -> None:
        """Dead-letter requests: each name with the error given for it."""

        def adapter(prompt: str, session: Session) -> str:
            raise errors[prompt]

        before = self.dead.approximate_count()
        with running(self.loop(adapter, dlq=self.policy(max_delivery_count=1))):
            for name in errors:
                self.ask(name)
            until(lambda: self.requests.approximate_count() == 0)
        assert self.dead.approximate_count() == before + len(errors)
        for _ in errors:
            self.answer()

    def kept(self) -> list[Kept]:
        """Return all letters of the office, newest first."""

        async def asked() -> list[Kept]:
            store = await self.backend.letters()
            page = await store.find(limit=1000)
            return list(await store.get([head.id for head in page.heads]))

        return self.backend.call(asked())

    def _observe(self, event: Event) -> None:
        for observer in self.observers:
            observer(event)

    def seen(self, kind: type[Event_]) -> list[Event_]:
        return [event for event in list(self.events) if isinstance(event, kind)]


@contextmanager
def running(*loops: Any, **options: Any) -> Iterator[LoopGroup]:
    """Run loops on a thread; the test fails if they do not end well."""
    group = LoopGroup(loops=loops, watchdog_threshold=None, **options)
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(group.run(install_signals=False, wait_time_seconds=0.05))
        except BaseException as error:  # noqa: BLE001 -- shown by the test
            ended.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield group
    finally:
        until(lambda: ended or all(loop.running for loop in loops))
        group.shutdown()
        thread.join(30)
        assert ended == [0], ended


def until(check: Callable[[], T], *, within: float = 15.0) -> T:
    """Wait until the check returns something true, and return it."""
    deadline = time.monotonic() + within
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not within {within} s: {check}"
        time.sleep(0.005)
    return answer


def upper(prompt: str, session: Session) -> str:
    return prompt.upper()


def failing(error: Exception) -> Callable[[str, Session], str]:
    """Return an adapter function that always raises this error."""

    def adapter(prompt: str, session: Session) -> str:
        raise error

    return adapter
