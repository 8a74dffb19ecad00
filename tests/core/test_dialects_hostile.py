"""Whatever lies in a dead place: it is kept, once, and nothing is raised."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from core.filing_rig import file
from deadletter.core.signing import Keys
from deadletter.intake.dialects import MALFORMED, Found, letter_of, unmarked

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
KEYS = Keys(b"the key of this office")

SPOKEN = [
    *("x-death", "x-first-death-queue", "x-last-death-reason", "x-first-death-x"),
    *("kafka_dlt-original-topic", "kafka_dlt-original-partition"),
    *("kafka_dlt-original-offset", "kafka_dlt-exception-message"),
    *("__connect.errors.topic", "__connect.errors.partition"),
    *("__connect.errors.offset", "__streams.errors.message", "__dlq.errors.group"),
    *("MT-Fault-Timestamp", "MT-Fault-RetryCount", "MT-Fault-InputAddress"),
    *("NServiceBus.TimeOfFailure", "NServiceBus.FailedQ", "NServiceBus.Retries"),
    *("kafka_dlt-key-exception-message", "x-opt-deaths", "dead-letter-topic"),
    *("dead-letter-partition", "dead-letter-offset", "dead-letter-reason"),
    *("exception-type", "failed-at", "original-destination", "attempts"),
    *("CloudPubSubDeadLetterSourceTopicPublishTime", "DeadLetterReason"),
    *("ce_knativeerrorcode", "knativeerrordata", "knativeerrordest"),
    *("reason_poisoned", "topic_poisoned", "task", "id", "root_id", "retries"),
    *("dlq-id", "dlq-attempts", "dlq-failed-at", "dlq-source", "dlq-found"),
    *("dlq-replay-of", "dlq-replay-count", "traceparent", "dlq-message-id"),
]
values = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"9" * 30, b"-1", b"[[[[", b'[{"count": true}]', b'{"a": 1e999}']),
    st.sampled_from([b"9999-12-31T23:59:59Z", b"0001-01-01T00:00:00+14:00"]),
    st.sampled_from([b'"\\ud800"', b"\\x00", b"[" * 5000, b"a" * 24, b""]),
)

texts = st.text(max_size=20)
anything = st.builds(
    Found,
    kind=st.sampled_from(["rabbitmq", "kafka", "rq", "bullmq", "nats", "sqs"]),
    place=st.sampled_from(["orders-dlq", "a b", "ü", "\x1b[2J"]),
    id=texts,
    body=st.one_of(
        st.binary(max_size=50),
        st.sampled_from(
            [
                b'{"actor_name": 1, "queue_name": [], "message_id": {}, "options": 7}',
                b'{"actor_name":"\\ud800","queue_name":"q","message_id":"m","options":{}}',
                b'{"actor_name":"a","queue_name":"","message_id":"","options":{"x":3}}',
                b'{"knativeerrorcode": [], "knativeerrordata": {"a": 1}}',
            ]
        ),
    ),
    headers=st.lists(st.tuples(st.one_of(st.sampled_from(SPOKEN), texts), values), max_size=8).map(
        tuple
    ),
    about=st.dictionaries(
        st.sampled_from(
            [
                *("type", "deliveries", "timestamp", "atm", "stacktrace", "exc_info"),
                *("DeadLetterQueueSourceArn", "SentTimestamp", "finishedOn"),
                MALFORMED,
            ]
        ),
        st.one_of(texts, values.map(lambda value: value.decode("utf-8", "replace"))),
    ),
    source=texts,
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    raw=st.binary(max_size=10),
)


@given(anything)
def test_any_drained_message_is_kept_with_its_body_unchanged(thing: Found) -> None:
    letter = letter_of(thing, NOW, KEYS)

    assert letter.message.body == thing.body
    assert letter.head.size == len(thing.body)
    assert letter.head.source
    assert letter.head.message_id == letter.message.id
    assert letter.head.attempts >= 0
    assert letter.head.first_failed_at <= letter.head.dead_at <= NOW
    assert letter.message.sent_at <= NOW
    assert letter.story()
    letter.head.error_text.encode()  # text that is none would not be stored
    letter.head.reason_text.encode()
    letter.head.source.encode()


@given(anything)
def test_the_same_thing_found_again_changes_nothing(thing: Found) -> None:
    letter = letter_of(thing, NOW, KEYS)
    later = letter_of(thing, NOW + timedelta(hours=1), KEYS)

    filed = file([letter, later], lambda ids: {})

    assert filed[0].id == filed[1].id
    assert filed[1].after is None


@given(anything)
def test_no_dialect_makes_up_headers(thing: Found) -> None:
    letter = letter_of(thing, NOW, KEYS)

    kept = list(unmarked(letter.message).headers)
    assert all(pair in thing.headers for pair in kept)


def test_the_queue_named_by_the_drain_takes_precedence_over_headers() -> None:
    body = b'{"actor_name":"a","queue_name":"payroll","message_id":"m","options":{}}'
    lie = Found(kind="dramatiq", place="dramatiq:mail", source="mail", id="m", body=body)

    assert letter_of(lie, NOW, KEYS).head.source == "mail"
