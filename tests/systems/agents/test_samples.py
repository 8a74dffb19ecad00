"""
The examples of the document, on a real Redis server, with the exported names only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

import agents
from agents import (
    Backend,
    DeadLetter,
    DLQConsumer,
    DLQPolicy,
    FunctionAdapter,
    Mailbox,
    MailboxResolver,
    MainLoop,
    MainLoopRequest,
    MainLoopResult,
    RedisMailbox,
    RegistryResolver,
    Session,
)
from agents.errors import ContentPolicyViolation, RateLimitError, ValidationError
from engines.redis_rig import fresh
from servers import Server
from systems.agents.rig import AT_ONCE, running, until

pytestmark = pytest.mark.xdist_group("redis_server")


@dataclass(frozen=True)
class MyRequest:
    text: str


@dataclass(frozen=True)
class MyOutput:
    text: str


Requests: TypeAlias = Mailbox[MainLoopRequest[MyRequest], MainLoopResult[MyOutput]]
Dead: TypeAlias = Mailbox[DeadLetter[MainLoopRequest[MyRequest]], None]
Letter: TypeAlias = DeadLetter[MainLoopRequest[MyRequest]]


class MyMainLoop(MainLoop[MyRequest, MyOutput]):
    def prepare(self, request: MyRequest) -> str:
        return request.text.strip()


@dataclass
class Desk:
    """The mailboxes of a usual set-up, and an adapter."""

    requests: Requests
    dead_letters: Dead
    answers: Mailbox[MainLoopResult[MyOutput], None]
    is_open = False

    def adapter(self, prompt: str, session: Session) -> MyOutput:
        if prompt == "forbidden":
            raise ContentPolicyViolation("not here")
        if prompt == "invalid":
            raise ValidationError("no sense")
        if prompt == "busy" and session.delivery_count < 4:
            raise RateLimitError("slower")
        if prompt == "slow" and not self.is_open:
            raise TimeoutError("not yet")
        return MyOutput(prompt.upper())

    def loop(self, dlq: DLQPolicy[Any, Any]) -> MyMainLoop:
        return MyMainLoop(
            adapter=FunctionAdapter(self.adapter), requests=self.requests, dlq=dlq, config=AT_ONCE
        )

    def ask(self, *texts: str) -> None:
        for text in texts:
            request = MainLoopRequest(MyRequest(text))
            self.requests.send(request, reply_to=self.answers)

    def outputs(self, count: int) -> list[str]:
        """Return the outputs of this number of answers; errors are left out."""
        found: list[MainLoopResult[MyOutput]] = []
        while len(found) < count:
            (message,) = self.answers.receive(wait_time_seconds=15)
            found.append(message.body)
            message.acknowledge()
        return sorted(result.output.text for result in found if result.output)


@pytest.fixture
def desk(redis_server: Server, tmp_path: Path) -> Iterator[Desk]:
    url = fresh(redis_server.url)
    with Backend(url, office=f"sqlite:///{tmp_path}/office.db") as redis:
        yield Desk(
            requests=RedisMailbox(
                name="requests", client=redis, body_type=MainLoopRequest[MyRequest]
            ),
            dead_letters=RedisMailbox(
                name="requests-dlq", client=redis, body_type=DeadLetter[MainLoopRequest[MyRequest]]
            ),
            answers=RedisMailbox(name="answers", client=redis, body_type=MainLoopResult[MyOutput]),
        )


@contextmanager
def dead(desk: Desk, *texts: str) -> Iterator[None]:
    """Run a loop until these requests are dead-lettered."""
    policy = DLQPolicy(mailbox=desk.dead_letters, max_delivery_count=2)
    with running(desk.loop(policy)):
        desk.ask(*texts)
        until(lambda: desk.dead_letters.approximate_count() == len(texts))
        until(lambda: desk.requests.approximate_count() == 0)
    desk.outputs(len(texts))
    yield


def test_the_package_exports_the_documented_names() -> None:
    wanted = {
        *("Mailbox", "RedisMailbox", "InMemoryMailbox", "Message"),
        *("DLQPolicy", "DeadLetter", "DLQConsumer", "LoopGroup"),
        *("MainLoop", "MainLoopRequest", "MainLoopResult"),
        *("EvalLoop", "EvalRequest", "EvalResult", "MailboxResolver"),
        *("ProviderAdapter", "ResourceRegistry", "MainLoopConfig"),
    }

    assert wanted <= set(agents.__all__)
    for name in wanted:
        assert getattr(agents, name) is not None


def test_a_basic_set_up(desk: Desk) -> None:
    policy = DLQPolicy(mailbox=desk.dead_letters, max_delivery_count=5)
    with running(desk.loop(policy)):
        desk.ask("hello")
        assert desk.outputs(1) == ["HELLO"]
        desk.ask("slow")
        until(lambda: desk.dead_letters.approximate_count() == 1)

    (message,) = desk.dead_letters.receive()
    assert message.body.delivery_count == 5


def test_included_excluded_and_counted_errors(desk: Desk) -> None:
    policy = DLQPolicy(
        mailbox=desk.dead_letters,
        max_delivery_count=3,
        include_errors=frozenset({ValidationError, ContentPolicyViolation}),
        exclude_errors=frozenset({RateLimitError}),
    )
    with running(desk.loop(policy)):
        desk.ask("invalid", "forbidden", "busy", "slow")
        assert desk.outputs(4) == ["BUSY"]
        until(lambda: desk.requests.approximate_count() == 0)

    counts = {
        message.body.body.request.text: message.body.delivery_count
        for message in desk.dead_letters.receive(max_messages=10)
    }
    assert counts == {"invalid": 1, "forbidden": 1, "slow": 3}


def process_dead_letters(dlq: Dead, *, handler: Callable[[Letter], None]) -> list[str]:
    """Poll once, and return the errors of the handler."""
    errors = []
    for message in dlq.receive(max_messages=10, wait_time_seconds=20):
        try:
            handler(message.body)
            message.acknowledge()
        except LookupError as error:
            errors.append(str(error))
            message.nack(visibility_timeout=3600)
    return errors


def test_a_consumer_by_hand(desk: Desk) -> None:
    def handler(letter: Letter) -> None:
        if letter.body.request.text == "invalid":
            raise LookupError("no such thing")

    with dead(desk, "slow", "invalid"):
        assert process_dead_letters(desk.dead_letters, handler=handler) == ["no such thing"]

    assert desk.dead_letters.approximate_count() == 1
    assert desk.dead_letters.receive() == []  # for an hour


def replay_handler(letter: Letter, *, source: Requests, reply_resolver: MailboxResolver) -> None:
    reply_to = None
    if letter.reply_to:
        reply_to = reply_resolver.resolve(letter.reply_to)
    source.send(letter.body, reply_to=reply_to)


def test_replay_by_hand(desk: Desk) -> None:
    resolver = RegistryResolver({"answers": desk.answers})
    with dead(desk, "invalid", "slow"):
        for message in desk.dead_letters.receive(max_messages=10, visibility_timeout=60):
            if "TimeoutError" in message.body.last_error_type:
                replay_handler(message.body, source=desk.requests, reply_resolver=resolver)
                message.acknowledge()
            else:
                message.nack(visibility_timeout=0)
    desk.is_open = True

    with running(desk.loop(DLQPolicy(mailbox=desk.dead_letters))):
        assert desk.outputs(1) == ["SLOW"]
    assert desk.dead_letters.approximate_count() == 1


def test_replay_with_a_set_of_seen_requests(desk: Desk) -> None:
    seen: set[UUID | None] = set()
    sent, skipped = [], []

    def handler(letter: Letter) -> None:
        if letter.request_id in seen:
            skipped.append(letter)
            return
        seen.add(letter.request_id)
        sent.append(desk.requests.send(letter.body))

    twice = MainLoopRequest(MyRequest("slow"))
    policy = DLQPolicy(mailbox=desk.dead_letters, max_delivery_count=2)
    with running(desk.loop(policy)):
        desk.requests.send(twice)  # two messages, one request
        desk.requests.send(twice)
        desk.ask("invalid")
        until(lambda: desk.dead_letters.approximate_count() == 3)
        until(lambda: desk.requests.approximate_count() == 0)
    consumer: DLQConsumer[Any] = DLQConsumer(mailbox=desk.dead_letters, handler=handler)
    consumer.run(max_iterations=1, wait_time_seconds=5)

    assert len(sent) == len(seen) == 2
    assert [letter.request_id for letter in skipped] == [twice.request_id]
    assert desk.requests.approximate_count() == 2
    assert desk.dead_letters.approximate_count() == 0
