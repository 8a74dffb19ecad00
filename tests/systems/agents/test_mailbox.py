"""The contract of a mailbox, on every engine."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents import (
    Backend,
    CompositeResolver,
    InMemoryMailbox,
    Mailbox,
    MainLoopRequest,
    RedisMailbox,
    RegistryResolver,
)
from agents.errors import (
    InvalidParameterError,
    MailboxConnectionError,
    MailboxError,
    MailboxResolutionError,
    MessageFinalizedError,
    ReceiptHandleExpiredError,
    ReplyNotAvailableError,
    SerializationError,
)
from deadletter.testing.fakes import FakeClock
from systems.agents.rig import Rig, until


def test_a_received_message_has_its_fields_until_it_is_acknowledged(rig: Rig) -> None:
    before = datetime.now(UTC)
    request = MainLoopRequest("hello")
    sent = rig.requests.send(request)

    (message,) = rig.requests.receive()

    assert (message.id, message.body) == (sent, request)
    assert message.delivery_count == 1
    assert before - timedelta(seconds=1) <= message.enqueued_at <= datetime.now(UTC)
    assert message.receipt_handle
    assert message.reply_to is None
    assert rig.requests.name == "requests"
    assert rig.requests.approximate_count() == 1  # invisible ones count
    message.acknowledge()
    assert rig.requests.approximate_count() == 0
    assert rig.requests.receive() == []


def test_unacknowledged_messages_are_delivered_again(rig: Rig) -> None:
    rig.requests.send(MainLoopRequest("hello"))
    (first,) = rig.requests.receive(visibility_timeout=0.05)

    (second,) = rig.requests.receive(wait_time_seconds=10)

    assert (second.id, second.delivery_count) == (first.id, 2)
    assert second.receipt_handle != first.receipt_handle
    with pytest.raises(ReceiptHandleExpiredError):
        first.acknowledge()
    second.acknowledge()
    assert rig.requests.approximate_count() == 0


def test_nack_returns_a_message_at_once_or_later(rig: Rig) -> None:
    rig.requests.send(MainLoopRequest("hello"))
    (first,) = rig.requests.receive()
    first.nack()
    (second,) = rig.requests.receive()
    assert second.delivery_count == 2
    second.nack(visibility_timeout=0.3)
    began = time.monotonic()

    assert rig.requests.receive() == []
    assert rig.requests.approximate_count() == 1
    (third,) = rig.requests.receive(wait_time_seconds=10)

    assert third.delivery_count == 3
    assert time.monotonic() - began >= 0.25


def test_visibility_can_be_extended_from_now_on(timed: Rig, clock: FakeClock) -> None:
    timed.requests.send(MainLoopRequest("hello"))
    (message,) = timed.requests.receive(visibility_timeout=30)
    clock.advance(20)
    message.extend_visibility(30)
    clock.advance(20)

    assert timed.requests.receive() == []
    clock.advance(11)
    assert len(timed.requests.receive()) == 1
    with pytest.raises(ReceiptHandleExpiredError):
        message.extend_visibility(30)


def test_a_message_is_finalised_once(rig: Rig) -> None:
    rig.requests.send(MainLoopRequest("hello"), reply_to=rig.answers)
    (message,) = rig.requests.receive()
    assert not message.is_finalized
    message.acknowledge()

    assert message.is_finalized
    for verb in (message.acknowledge, message.nack, lambda: message.reply(None)):
        with pytest.raises(MessageFinalizedError):
            verb()


def test_replies_go_to_the_reply_mailbox(rig: Rig) -> None:
    asked = rig.box("asked", str)
    answers = rig.box("told", int)
    asked.send("how many?", reply_to=answers)
    (message,) = asked.receive()

    message.reply(41)
    message.reply(42)

    assert message.reply_to.name == "told"
    assert [m.body for m in answers.receive(max_messages=10)] == [41, 42]


def test_without_a_reply_mailbox_there_is_no_reply(rig: Rig) -> None:
    rig.requests.send(MainLoopRequest("hello"))
    (message,) = rig.requests.receive()

    with pytest.raises(ReplyNotAvailableError):
        message.reply(None)  # type: ignore[arg-type]


def test_resolvers_turn_names_into_reply_mailboxes(rig: Rig) -> None:
    known = RegistryResolver({"answers": rig.answers})
    listed = rig.box("listed", reply_resolver=known)
    listed.send(1, reply_to=rig.answers)
    listed.send(2, reply_to=rig.box("elsewhere"))

    first, second = listed.receive(max_messages=2)

    assert first.reply_to is rig.answers
    assert second.reply_to is None  # not known: no reply
    with pytest.raises(MailboxResolutionError) as raised:
        known.resolve("elsewhere")
    assert raised.value.identifier == "elsewhere"
    made = CompositeResolver({"answers": rig.answers}, rig.box)
    assert made.resolve("answers") is rig.answers
    assert made.resolve("elsewhere").name == "elsewhere"


def test_a_long_poll_ends_with_the_first_message_or_the_deadline(rig: Rig) -> None:
    began = time.monotonic()
    assert rig.requests.receive(wait_time_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < 5

    def later() -> None:
        rig.requests.send(MainLoopRequest("hello"))

    sending = threading.Timer(0.2, later)
    sending.start()
    (message,) = rig.requests.receive(wait_time_seconds=60)
    sending.join()
    assert message.body.request == "hello"


def test_closing_a_mailbox_ends_receivers_and_rejects_sending(rig: Rig) -> None:
    received: list[Any] = []
    waiting = threading.Thread(
        target=lambda: received.append(rig.requests.receive(wait_time_seconds=60))
    )
    waiting.start()

    rig.requests.close()

    waiting.join(10)
    assert received == [[]]
    assert rig.requests.closed
    with pytest.raises(MailboxError):
        rig.requests.send(MainLoopRequest("hello"))


def test_up_to_ten_messages_are_received_in_the_order_of_sending(rig: Rig) -> None:
    numbers = rig.box("numbers", int)
    for number in range(12):
        numbers.send(number)

    assert [m.body for m in numbers.receive(max_messages=10)] == list(range(10))
    assert [m.body for m in numbers.receive(max_messages=10)] == [10, 11]


@pytest.mark.parametrize(
    "asked",
    [
        {"max_messages": 0},
        {"max_messages": 11},
        {"visibility_timeout": -1},
        {"visibility_timeout": 43_201},
        {"wait_time_seconds": -1},
    ],
)
def test_numbers_out_of_range_are_rejected(timed: Rig, asked: dict[str, int]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(asked))):
        timed.requests.receive(**asked)


def test_purge_deletes_visible_messages(rig: Rig) -> None:
    numbers = rig.box("numbers", int)
    for number in range(5):
        numbers.send(number)
    numbers.receive(visibility_timeout=60)

    assert numbers.purge() == 4
    assert numbers.approximate_count() == 1


def test_unencodable_bodies_are_rejected_and_undecodable_ones_are_bytes(rig: Rig) -> None:
    with pytest.raises(SerializationError):
        rig.requests.send(object())  # type: ignore[arg-type]
    rig.backend.call(rig.backend.app.send("requests", b"\xff no request"))

    (message,) = rig.requests.receive()

    assert message.body == b"\xff no request"  # type: ignore[comparison-overlap]
    message.acknowledge()


def test_a_message_is_leased_to_one_receiver(rig: Rig) -> None:
    numbers = rig.box("numbers", int)
    for number in range(60):
        numbers.send(number)
    taken: list[int] = []

    def take() -> None:
        while batch := numbers.receive(max_messages=3, visibility_timeout=60):
            for message in batch:
                taken.append(message.body)
                message.acknowledge()

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(30)

    assert sorted(taken) == list(range(60))
    assert until(lambda: numbers.approximate_count() == 0)


def test_an_unavailable_broker_is_a_connection_error() -> None:
    with (
        Backend("redis://127.0.0.1:1/0", office="memory://") as backend,
        pytest.raises(MailboxConnectionError),
    ):
        RedisMailbox[int, None](name="numbers", client=backend).send(1)


def test_reply_mailboxes_must_share_the_backend(timed: Rig) -> None:
    with Backend("memory://") as other:
        elsewhere: Mailbox[Any, None] = InMemoryMailbox(name="answers", client=other)
        with pytest.raises(InvalidParameterError, match="same backend"):
            timed.requests.send(MainLoopRequest("hello"), reply_to=elsewhere)


def test_a_redis_mailbox_is_on_redis_and_one_in_memory_needs_no_client() -> None:
    with Backend("memory://") as backend, pytest.raises(InvalidParameterError):
        RedisMailbox[int, None](name="numbers", client=backend)
    one = InMemoryMailbox[int, None](name="shared", body_type=int)
    two = InMemoryMailbox[int, None](name="shared", body_type=int)

    one.send(7)

    (message,) = two.receive()
    assert message.body == 7
    message.acknowledge()
