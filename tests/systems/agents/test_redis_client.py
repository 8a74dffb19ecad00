"""The documented set-up: mailboxes that are given a Redis client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from agents import (
    DeadLetter,
    DLQConsumer,
    DLQPolicy,
    EvalLoop,
    EvalRequest,
    EvalResult,
    FunctionAdapter,
    Mailbox,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    PromptResponse,
    RedisMailbox,
    Sample,
    Score,
    Session,
)
from agents.backend import OFFICE, backend_of
from agents.errors import InvalidParameterError, RateLimitError, ValidationError
from deadletter import NoBackoff
from engines.redis_rig import fresh
from servers import Server
from systems.agents.rig import failing, running, until, upper
from systems.agents.test_samples import MyOutput, MyRequest

pytestmark = pytest.mark.xdist_group("redis_server")

SOON = MainLoopConfig(backoff=NoBackoff())


class Adapter:
    """Answers in capitals, and refuses some prompts."""

    def evaluate(self, prompt: str, *, session: Session) -> PromptResponse[MyOutput]:
        if prompt == "invalid":
            raise ValidationError("no sense")
        if prompt == "busy" and session.delivery_count < 7:
            raise RateLimitError("slower")
        if prompt == "slow":
            raise TimeoutError("too slow")
        return PromptResponse(MyOutput(prompt.upper()))


class MyMainLoop(MainLoop[MyRequest, MyOutput]):
    def prepare(self, request: MyRequest) -> str:
        return request.text


@pytest.fixture
def client(redis_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    client = redis.Redis.from_url(fresh(redis_server.url))
    try:
        yield client
    finally:
        backend_of(client).close()
        client.close()


def test_the_basic_set_up(client: Any) -> None:
    requests: Mailbox[MainLoopRequest[MyRequest], MainLoopResult[MyOutput]] = RedisMailbox(
        name="requests", client=client
    )
    dead_letters: Mailbox[DeadLetter[MainLoopRequest[MyRequest]], None] = RedisMailbox(
        name="requests-dlq", client=client
    )
    answers = RedisMailbox[MainLoopResult[MyOutput], None](name="answers", client=client)
    main_loop = MyMainLoop(
        adapter=Adapter(),
        requests=requests,
        config=SOON,
        dlq=DLQPolicy(
            mailbox=dead_letters,
            max_delivery_count=5,
            include_errors=frozenset({ValidationError}),
            exclude_errors=frozenset({RateLimitError}),
        ),
    )
    seen: list[DeadLetter[MainLoopRequest[MyRequest]]] = []
    with running(main_loop, DLQConsumer(mailbox=dead_letters, handler=seen.append)):
        for text in ("hello", "invalid", "busy", "slow"):
            requests.send(MainLoopRequest(MyRequest(text)), reply_to=answers)
        until(lambda: len(seen) == 2)
        until(lambda: answers.approximate_count() == 4)

    counts = {letter.body.request.text: letter.delivery_count for letter in seen}
    assert counts == {"invalid": 1, "slow": 5}
    results = [message.body for message in answers.receive(max_messages=10)]
    outputs = {result.output.text for result in results if result.output is not None}
    assert outputs == {"HELLO", "BUSY"}
    assert Path(OFFICE.removeprefix("sqlite:///")).exists()


def test_samples_are_decoded_by_the_types_of_the_loop(client: Any) -> None:
    requests: RedisMailbox[Any, Any] = RedisMailbox(name="requests", client=client)
    evals: RedisMailbox[Any, Any] = RedisMailbox(name="eval-requests", client=client)
    scores = RedisMailbox[EvalResult, None](name="scores", client=client)

    def judge(output: MyOutput, expected: str) -> Score:
        return Score(1.0, passed=output.text == expected)

    loop: EvalLoop[MyRequest, MyOutput, str] = EvalLoop(
        loop=MyMainLoop(adapter=Adapter(), requests=requests), evaluator=judge, requests=evals
    )
    with running(loop):
        evals.send(EvalRequest(Sample("s-1", MyRequest("a"), "A")), reply_to=scores)
        (message,) = scores.receive(wait_time_seconds=15)

    assert message.body.score == Score(1.0, passed=True)


def test_clients_of_one_database_share_a_backend(client: Any, redis_server: Server) -> None:
    options = client.connection_pool.connection_kwargs
    place = {name: options.get(name) for name in ("host", "port", "username", "password")}
    again = redis.Redis(**place, db=options.get("db") or 0)
    one: RedisMailbox[int, None] = RedisMailbox(name="numbers", client=client)
    two: RedisMailbox[int, None] = RedisMailbox(name="numbers", client=again)

    one.send(7)

    (message,) = two.receive()
    assert message.body == 7
    assert one.backend is two.backend
    other = redis.Redis(**place, db=15)
    assert backend_of(other) is not one.backend
    backend_of(other).close()
    again.close()


def test_the_time_to_live_of_a_mailbox(client: Any) -> None:
    usual: RedisMailbox[Any, Any] = RedisMailbox(name="requests", client=client)
    longer: RedisMailbox[Any, Any] = RedisMailbox(
        name="requests-dlq", client=client, default_ttl=2_592_000
    )

    assert (usual.default_ttl, longer.default_ttl) == (259_200, 2_592_000)


def test_a_closed_backend_is_opened_anew(client: Any) -> None:
    first = backend_of(client)
    first.close()

    RedisMailbox[int, None](name="numbers", client=client).send(1)

    assert backend_of(client) is not first


@pytest.mark.parametrize("client", [object(), redis.Redis(unix_socket_path="/nowhere")])
def test_clients_without_a_host_are_rejected(client: Any) -> None:
    with pytest.raises(InvalidParameterError, match="pass Backend"):
        RedisMailbox[Any, Any](name="requests", client=client)


@pytest.mark.parametrize(
    ("client", "url"),
    [
        (redis.Redis(host="h", db=2), "redis://h:6379/2"),
        (redis.Redis(host="h", port=7, password="a/b"), "redis://:a%2Fb@h:7/0"),
        (redis.Redis(host="::1", username="u", password="p"), "redis://u:p@[::1]:6379/0"),
        (redis.Redis(host="h", ssl=True), "rediss://h:6379/0"),
        (redis.asyncio.Redis(host="h"), "redis://h:6379/0"),
    ],
)
def test_the_address_of_a_client(client: Any, url: str) -> None:
    backend = backend_of(client)
    try:
        assert backend.url == url
    finally:
        backend.close()


def test_a_mailbox_without_a_type_is_decoded_as_its_loop_says(client: Any) -> None:
    requests: RedisMailbox[Any, Any] = RedisMailbox(name="requests", client=client)
    requests.send(MainLoopRequest(MyRequest("hello")))
    (before,) = requests.receive()
    before.nack()
    MyMainLoop(adapter=FunctionAdapter(upper), requests=requests)  # type: ignore[arg-type]
    (after,) = requests.receive()

    assert isinstance(before.body, dict)
    assert after.body.request == MyRequest("hello")


def test_a_given_body_type_is_kept(client: Any) -> None:
    requests: RedisMailbox[Any, Any] = RedisMailbox(
        name="requests", client=client, body_type=MainLoopRequest[str]
    )
    loop: MainLoop[str, str] = MyMainLoop(  # type: ignore[assignment]
        adapter=FunctionAdapter(failing(ValueError("no"))),  # type: ignore[arg-type]
        requests=requests,
    )
    requests.send(MainLoopRequest("hello"))

    (message,) = requests.receive()

    assert message.body.request == "hello"
    assert not loop.running
