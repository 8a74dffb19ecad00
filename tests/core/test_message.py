"""Messages: bytes in, the same bytes out."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.core.message import Delivery, Lineage, Message, as_headers

NOW = datetime(2026, 3, 1, tzinfo=UTC)
names = st.text(max_size=10)
messages = st.builds(
    Message,
    id=names,
    body=st.binary(max_size=50),
    sent_at=st.just(NOW),
    headers=st.lists(st.tuples(names, st.binary(max_size=10)), max_size=5).map(tuple),
    key=st.none() | names,
    reply_to=st.none() | names,
    lineage=st.none()
    | st.builds(Lineage, letter_id=names, generation=st.integers(1, 9), campaign=names),
)


@given(messages)
def test_a_message_survives_being_written_down_byte_for_byte_p8(message: Message) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(message), type=Message) == message


def test_a_header_is_the_last_of_its_name_as_text() -> None:
    headers = (("a", b"1"), ("b", b"\xff"), ("a", b"2"))
    message = Message(id="m", body=b"", sent_at=NOW, headers=headers)

    assert message.header("a") == "2"
    assert message.header("b") == "\ufffd"
    assert message.header("c") is None


def test_a_replayed_copy_has_a_dedup_id_of_its_own_p5() -> None:
    original = Message(id="m", body=b"", sent_at=NOW)
    copies = [
        Message(
            id="m",
            body=b"",
            sent_at=NOW,
            lineage=Lineage(letter_id="l", generation=n, campaign="c"),
        )
        for n in (1, 2)
    ]

    assert original.generation == 0
    assert [copy.generation for copy in copies] == [1, 2]
    assert len({message.dedup_id for message in (original, *copies)}) == 3


@given(attempt=st.integers(1, 100), spared=st.integers(0, 50))
def test_spared_attempts_are_not_charged(attempt: int, spared: int) -> None:
    message = Message(id="m", body=b"", sent_at=NOW)
    delivery = Delivery(message=message, mailbox="orders", attempt=attempt + spared, spared=spared)

    assert delivery.charged == attempt


def test_headers_keep_their_order_and_their_duplicates() -> None:
    given_ = [("b", "é"), ("a", b"\xff"), ("b", bytearray(b"x")), ("c", memoryview(b"y"))]

    kept = (("b", "é".encode()), ("a", b"\xff"), ("b", b"x"), ("c", b"y"))
    assert as_headers(given_) == kept  # type: ignore[arg-type]
    assert as_headers(iter(given_)) == kept  # type: ignore[arg-type]
    assert as_headers({"a": "1"}) == (("a", b"1"),)
    assert as_headers(None) == as_headers({}) == as_headers([]) == ()


@pytest.mark.parametrize("value", [3, None, 1.5, [1, 2], object()])
def test_a_header_that_is_neither_text_nor_bytes_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="Header 'retries' is of type"):
        as_headers({"retries": value})  # type: ignore[dict-item]
