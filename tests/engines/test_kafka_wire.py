"""A message becomes a record and comes back as it was, whatever is in it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from deadletter.brokers.kafka.records import (
    Raw,
    Trail,
    from_record,
    to_record,
    with_spring,
    with_trail,
)
from deadletter.core.message import Message
from deadletter.core.signing import Keys
from deadletter.testing.fakes import START
from deadletter.testing.queue_contract import messages

_any_text = st.text(st.characters(exclude_categories=()), max_size=20)
_trails = st.builds(
    Trail,
    attempts=st.integers(0, 99),
    spared=st.integers(0, 99),
    suspect=st.booleans(),
    first_at=st.none() | st.integers(-(10**16), 10**16),
    due=st.none() | st.integers(-(10**16), 10**16),
    origin=st.none()
    | st.tuples(st.from_regex(r"[a-z._-]{1,9}", fullmatch=True), *[st.integers(0, 9)] * 2),
    history=_any_text,
)
_raw_headers = st.lists(
    st.tuples(
        st.sampled_from(["dlq-message-id", "dlq-attempt", "dlq-due", "a", "traceparent"]),
        st.none() | st.binary(max_size=9),
    ),
    max_size=6,
)


KEYS = Keys(b"the key of this office")


def read(raw: Raw, keys: Keys = KEYS, topic: str = "orders") -> tuple[Message, Trail]:
    return from_record(raw, topic, 3, 42, 1_000, keys)


def tried(raw: Raw, trail: Trail, message: Message) -> Raw:
    return with_trail(raw, trail, message, topic="orders", keys=KEYS)


@given(messages, _any_text, _any_text)
def test_a_message_comes_back_as_it_was(message: Message, key: str, name: str) -> None:
    odd = structs.replace(message, key=key, headers=(*message.headers, (name, b"x")))

    assert read(to_record(message)) == (message, Trail())
    assert read(to_record(odd)) == (odd, Trail())


@given(messages, _trails, _trails)
def test_a_trail_replaces_the_one_before(message: Message, first: Trail, second: Trail) -> None:
    raw = tried(tried(to_record(message), first, message), second, message)

    again, trail = read(raw)

    assert again == message
    expected = structs.replace(
        second,
        first_at=first.first_at if second.first_at is None else second.first_at,
        due=first.due if second.due is None else second.due,
        origin=second.origin or first.origin,
    )
    assert trail == expected


@given(st.binary(max_size=20), st.none() | st.binary(max_size=20), _raw_headers)
def test_any_record_can_be_read_and_sent_round(
    key: bytes, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    raw = Raw(key=key, value=value, headers=headers)
    message, trail = read(raw)

    round_ = tried(raw, structs.replace(trail, attempts=1), message)

    assert (round_.key, round_.value) == (key, value)
    again, seen = read(round_)
    assert again.id == message.id
    assert again.headers == message.headers
    assert (seen.attempts, seen.unsigned) == (1, False)


def test_attempts_that_none_of_us_has_signed_are_headers_of_the_user() -> None:
    message = Message(id="m", body=b"x", sent_at=START, headers=(("a", b"1"),))
    ours = tried(to_record(message), Trail(attempts=99, due=7, history="x"), message)
    stranger = Keys(b"another key")

    for lie in (read(ours, stranger), read(ours, topic="payments")):
        assert lie[1] == Trail(due=7, unsigned=True)
        names = [name for name, _ in lie[0].headers]
        assert names[0] == "a"
        assert {"dlq-attempt", "dlq-history", "dlq-attempt-signature"} < set(names)
    assert read(structs.replace(ours, value=b"y"))[1].unsigned
    assert read(ours)[1] == Trail(attempts=99, due=7, history="x")


def test_a_delay_needs_no_signature() -> None:
    """A producer may belong to another office, and has a wish to wait anyway."""
    message = Message(id="m", body=b"x", sent_at=START)

    assert read(tried(to_record(message), Trail(due=7), message), Keys(b"b")) == (
        message,
        Trail(due=7),
    )


def test_foreign_records_are_identified_by_their_position() -> None:
    message, trail = read(Raw(key=b"\xff", value=None, headers=[("a", None)]))

    assert message.id == "orders/3/42"
    assert (message.body, message.headers) == (b"", (("a", b""),))
    assert trail == Trail()
    assert to_record(message).key == b"\xff"


def test_spring_finds_what_it_looks_for_and_we_do_not_see_it() -> None:
    letter = Message(
        id="m-1",
        body=b"{}",
        sent_at=START,
        headers=(
            ("dlq-reason", b"rejected"),
            ("dlq-position", b"orders/3/42"),
            ("dlq-error-type", b"ValueError"),
            ("dlq-error-message", b"no good"),
        ),
    )

    raw = with_spring(to_record(letter), letter, "shop")

    spring = dict(raw.headers)
    assert spring["kafka_dlt-original-topic"] == b"orders"
    assert spring["kafka_dlt-original-partition"] == b"\0\0\0\3"
    assert spring["kafka_dlt-original-offset"] == b"\0\0\0\0\0\0\0\x2a"
    assert spring["kafka_dlt-exception-fqcn"] == b"ValueError"
    assert spring["kafka_dlt-original-consumer-group"] == b"shop"
    assert read(raw)[0] == letter
