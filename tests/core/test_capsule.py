"""Messages in files, for tests that repeat a death."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.errors import ConfigError
from deadletter.core.message import Message
from deadletter.core.packing import masked, read, written

AT = datetime(2030, 1, 1, tzinfo=UTC)
texts = st.none() | st.text(max_size=20)
messages = st.builds(
    Message,
    id=st.text(min_size=1, max_size=20),
    body=st.binary(max_size=200) | st.text(max_size=50).map(str.encode),
    sent_at=st.just(AT),
    headers=st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=4).map(tuple),
    content_type=texts,
    key=texts,
    idempotency_key=texts,
    reply_to=texts,
)


@given(messages)
def test_written_capsules_are_read_back(message: Message) -> None:
    assert read(written("orders", message)) == ("orders", message)


def test_people_can_read_it() -> None:
    message = Message(
        id="o-1",
        body='{"city": "Zürich"}'.encode(),
        sent_at=AT,
        headers=(("tenant", b"eu"), ("raw", b"\xff\x00")),
    )

    assert json.loads(written("orders", message)) == {
        "mailbox": "orders",
        "id": "o-1",
        "body": '{"city": "Zürich"}',
        "headers": [["tenant", "eu"], ["raw", {"base64": "/wA="}]],
        "sent_at": "2030-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"mailbox": 1}', "\ud800", '{"mailbox":"a","id":"b"}']
)
def test_another_file_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="not a message file of `dlq repro`"):
        read(text.encode("utf-8", "surrogatepass"))


def test_base64_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="dlq repro"):
        read('{"mailbox":"a","id":"b","body":{"base64":"?"}}')


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"a": 1.50, "b": [true]}', b'{"a": 1.50, "b": [true]}'),
        (b'{"password": "x", "n": 1}', b'{"password": "[redacted]", "n": 1}'),
        (b'{"token": {"a": [1]}}', b'{"token": "[redacted]"}'),
        (b'[{"card": 4111111111111111}]', b'[{"card": 0}]'),
        (b"password=hunter2 &c", b"password=[redacted] &c"),
        (b"\xff\x00password=hunter2", b"\xff\x00password=[redacted]"),
        (b"\xff\x00", b"\xff\x00"),
        (b"", b""),
    ],
)
def test_secrets_are_masked_and_nothing_else(body: bytes, shown: bytes) -> None:
    message = Message(
        id="o-1", body=body, sent_at=AT, headers=(("Authorization", b"Bearer abc"), ("x", b"y"))
    )

    found = masked(message)

    assert found.body == shown
    assert found.headers == (("Authorization", b"[redacted]"), ("x", b"y"))


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_no_body_is_too_odd(body: bytes) -> None:
    masked(Message(id="o-1", body=body, sent_at=AT))


def test_a_body_deeper_than_anyone_reads_is_masked_as_text() -> None:
    deep = b"[" * 100_000

    assert masked(Message(id="o-1", body=deep, sent_at=AT)).body == deep
