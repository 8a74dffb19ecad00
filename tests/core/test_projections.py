"""Dead letters in five foreign shapes: what a shape carries comes back as it was."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deadletter.core.attempts import append, attempt_of
from deadletter.core.burial import burial
from deadletter.core.errors import Malformed
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.ids import letter_id
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.profiles import lease_queue, mailbox, pipeline, relayer

NOW = datetime(2026, 2, 26, 12, 5, tzinfo=UTC)
TRACE = "0af7651916cd43dd8448eb211c80319c"

texts = st.text(max_size=30)
names = st.text(min_size=1, max_size=30)
times = st.datetimes(
    datetime(2000, 1, 1),  # noqa: DTZ001 -- hypothesis adds the zone itself
    datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
counts = st.integers(0, 2**31 - 1)


def letter(body: bytes = b"\x00\xffbody", attempts: int = 3) -> DeadLetter:
    """A letter of our own, the full story in it."""
    failure = Failure(
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        error_type="builtins.TimeoutError",
        text="the bank did not answer",
    )
    history = ""
    for number in range(1, attempts + 1):
        at = NOW + timedelta(seconds=number)
        history = append(history, attempt_of(failure, number=number, at=at))
    message = Message(
        id="m-1",
        body=body,
        sent_at=NOW - timedelta(minutes=5),
        headers=(("kind", b"payment"), ("retry-on-failure", b"true")),
        content_type="application/octet-stream",
        reply_to="replies",
        idempotency_key="0190b4c2-6d1f-7a3e-8d2c-1f2e3d4c5b6a",
        traceparent=f"00-{TRACE}-b7ad6b7169203331-01",
    )
    delivery = Delivery(message=message, mailbox="orders", attempt=attempts, position="3:42")
    bury = Bury(Reason.ATTEMPTS_EXHAUSTED, f"failed {attempts} of {attempts} attempts")
    return burial(
        delivery, failure, bury, history=history, now=NOW, consumer="charge", version="1.8"
    )


# The relayer: R0.18, R0.60, R0.62


def test_the_relayer_marks_the_transaction_failed() -> None:
    assert relayer.export(letter()) == {
        "transactionId": "0190b4c2-6d1f-7a3e-8d2c-1f2e3d4c5b6a",
        "messageId": "m-1",
        "status": "failed",
        "errorCategory": "RETRYABLE",
        "errorCode": "TIMEOUT",
        "errorMessage": "the bank did not answer",
        "receiveCount": 3,
        "retryOnFailure": True,
        "failedAt": "2026-02-26T12:05:00Z",
    }


@given(
    update=st.fixed_dictionaries(
        {
            "transactionId": names,
            "messageId": names,
            "status": st.just("failed"),
            "errorCategory": st.sampled_from(["RETRYABLE", "NON_RETRYABLE"]),
            "errorCode": texts,
            "errorMessage": texts,
            "receiveCount": counts,
            "retryOnFailure": st.booleans(),
            "failedAt": times.map(msgspec.to_builtins),
        }
    ),
    body=st.binary(max_size=50),
)
def test_a_status_update_comes_back_as_it_was(update: dict[str, Any], body: bytes) -> None:
    imported = relayer.import_(update, body=body)

    assert relayer.export(imported) == update
    assert imported.message.body == body
    assert imported.head.source == "relay-transactions"


@pytest.mark.parametrize("wish", [{}, {"retryOnFailure": None}])
def test_a_client_that_says_nothing_of_retries_wants_none_r0_14(wish: dict[str, None]) -> None:
    update = relayer.export(letter())
    del update["retryOnFailure"]

    imported = relayer.import_(update | wish)

    assert imported.retry_wish is False
    assert relayer.export(imported)["retryOnFailure"] is False


# The pipeline: R1.13-R1.21


def test_the_pipeline_gets_its_stream_and_where_it_failed() -> None:
    assert pipeline.export(letter()) == pipeline.DlqMessage(
        stream=b"\x00\xffbody",
        error_type="TIMEOUT",
        error_message="the bank did not answer",
        failed_at=NOW,
        retry_count=3,
        failed_node_id="charge",
        original_topic="orders",
        original_offset=42,
    )


@given(
    st.builds(
        pipeline.DlqMessage,
        stream=st.binary(max_size=100),
        error_type=texts,
        error_message=texts,
        failed_at=times,
        retry_count=counts,
        failed_node_id=texts,
        original_topic=names,
        original_offset=st.integers(-1, 2**63 - 1),
    ),
    st.sampled_from(Trouble),
)
def test_a_dlq_message_comes_back_as_it_was(message: pipeline.DlqMessage, trouble: Trouble) -> None:
    assert pipeline.export(pipeline.import_(message, trouble=trouble)) == message


@pytest.mark.parametrize("position", [None, "", "abc", "3:", "-5", "9" * 30, "٤٢", "1:2:x"])
def test_a_position_without_an_offset_is_nowhere(position: str | None) -> None:
    odd = structs.replace(letter(), position=position)

    assert pipeline.export(odd).original_offset == -1


@pytest.mark.parametrize("position", ["42", "3:42", "prod.node-7/3/42"])
def test_the_offset_is_read_whatever_an_engine_puts_before_it(position: str) -> None:
    placed = structs.replace(letter(), position=position)

    assert pipeline.export(placed).original_offset == 42


NODE = "0198f3a2-5a1e-7c33-9d55-0c1c6a4e7b10"


@pytest.mark.parametrize(
    ("mailbox", "node"),
    [
        (f"prod.{NODE}", NODE),
        (f"eu.west.{NODE}", NODE),
        (NODE, NODE),
        ("prod.orders", "prod.orders"),
        (f"prod.{NODE}.retry", f"prod.{NODE}.retry"),
        ("orders", "orders"),
        ("", ""),
    ],
)
def test_a_topic_says_which_node_reads_it_r1_46(mailbox: str, node: str) -> None:
    assert pipeline.node_of(mailbox) == node


# The queue server: R2.27-R2.31, R2.105-R2.109


def test_the_queue_server_gets_a_fresh_item_that_knows_its_source() -> None:
    item = lease_queue.export(letter())

    assert item["id"] == letter_id("orders", "", "m-1")
    assert item["id"] != item["source_id"]
    wanted = {
        "source_id": "m-1",
        "is_leased": False,
        "lease_deadline": None,
        "attempts": 0,
        "created_at": "2026-02-26T12:05:00Z",
        "reference": "0190b4c2-6d1f-7a3e-8d2c-1f2e3d4c5b6a",
        "kind": "payment",
        "encoding": "application/octet-stream",
        "payload": b64encode(b"\x00\xffbody").decode(),
    }
    assert wanted.items() <= item.items()


@given(
    created=times,
    item=st.fixed_dictionaries(
        {
            "source_id": names,
            "is_leased": st.just(False),
            "lease_deadline": st.none(),
            "expire_deadline": st.none() | times.map(msgspec.to_builtins),
            "enqueue_at": st.none(),
            "attempts": st.just(0),
            "max_attempts": st.integers(0, 65_536),
            "reference": texts,
            "encoding": texts,
            "kind": texts,
            "payload": st.binary(max_size=50).map(lambda b: b64encode(b).decode()),
        }
    ),
)
def test_a_storage_item_comes_back_as_it_was_but_for_its_own_id(
    created: datetime, item: dict[str, Any]
) -> None:
    at = msgspec.to_builtins(created)
    item |= {"id": "ksuid", "created_at": at, "updated_at": at}

    imported = lease_queue.import_(item, queue="orders")
    again = lease_queue.export(imported, max_attempts=item["max_attempts"])

    assert again == item | {"id": imported.id}


def test_the_same_item_taken_twice_is_the_same_letter_r2_34() -> None:
    item = lease_queue.export(letter())

    first = lease_queue.import_(item, queue="orders")
    second = lease_queue.import_(item | {"id": "another"}, queue="orders")
    elsewhere = lease_queue.import_(item, queue="mails")

    assert first.id == second.id == letter().id
    assert elsewhere.id != first.id


@pytest.mark.parametrize(
    ("deadline", "reason"), [(NOW, Reason.EXPIRED), (None, Reason.ATTEMPTS_EXHAUSTED)]
)
def test_an_item_died_of_its_deadline_or_its_attempts(
    deadline: datetime | None, reason: Reason
) -> None:
    item = lease_queue.export(letter()) | {"expire_deadline": msgspec.to_builtins(deadline)}

    assert lease_queue.import_(item, queue="orders").head.reason is reason


# The mailbox: R3.19-R3.30


def test_a_mailbox_gets_every_field_it_asks_for() -> None:
    assert mailbox.export(letter()) == mailbox.MailboxDeadLetter(
        message_id="m-1",
        body=b"\x00\xffbody",
        source_mailbox="orders",
        delivery_count=3,
        last_error="the bank did not answer",
        last_error_type="builtins.TimeoutError",
        dead_lettered_at=NOW,
        first_received_at=NOW - timedelta(minutes=5),
        request_id=UUID("0190b4c2-6d1f-7a3e-8d2c-1f2e3d4c5b6a"),
        reply_to="replies",
        trace_id=TRACE,
    )


@given(
    st.builds(
        mailbox.MailboxDeadLetter,
        message_id=names,
        body=st.binary(max_size=100),
        source_mailbox=names,
        delivery_count=counts,
        last_error=texts,
        last_error_type=texts,
        dead_lettered_at=times,
        first_received_at=times,
        request_id=st.none() | st.uuids(),
        reply_to=st.none() | names,
        trace_id=st.none() | names,
    )
)
def test_a_mailbox_letter_comes_back_as_it_was(given_: mailbox.MailboxDeadLetter) -> None:
    assert mailbox.export(mailbox.import_(given_)) == given_


@pytest.mark.parametrize(
    ("error_type", "told"),
    [
        ("ValueError", "builtins.ValueError"),
        ("__dict__", "__dict__"),
        ("print", "print"),
        ("shop.Broken", "shop.Broken"),
    ],
)
def test_only_errors_of_python_itself_live_in_builtins(error_type: str, told: str) -> None:
    head = structs.replace(letter().head, error_type=error_type)

    exported = mailbox.export(structs.replace(letter(), head=head))

    assert exported.last_error_type == told


def test_a_business_key_that_is_no_uuid_is_no_request_id() -> None:
    head = structs.replace(letter().head, business_key="courier-x:evt_123")

    exported = mailbox.export(structs.replace(letter(), head=head))

    assert exported.request_id is None


# Foreign values are hostile


@pytest.mark.parametrize(
    "broken", [{}, {"messageId": None}, {"errorCategory": "MAYBE"}, {"failedAt": "yesterday"}]
)
def test_bodies_that_are_not_status_updates_are_malformed(broken: dict[str, Any]) -> None:
    update = relayer.export(letter()) | broken if broken else {}

    with pytest.raises(Malformed, match="expected a status update"):
        relayer.import_(update)


@pytest.mark.parametrize("broken", [{}, {"id": 5}, {"payload": "%%%"}, {"created_at": "yesterday"}])
def test_bodies_that_are_not_storage_items_are_malformed(broken: dict[str, Any]) -> None:
    item = lease_queue.export(letter()) | broken if broken else {}

    with pytest.raises(Malformed, match="expected a storage item"):
        lease_queue.import_(item, queue="orders")
