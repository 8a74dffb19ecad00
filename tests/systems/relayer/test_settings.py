"""What the environment says, and what it cannot say."""

import pytest

from deadletter import ConfigError
from relayer.settings import DEAD_QUEUE, QUEUE, read

AMAZON = "https://sqs.ap-northeast-2.amazonaws.com/123456789012"


def test_without_a_word_it_is_the_emulator_on_4566() -> None:
    settings = read({})

    assert settings.server == "sqs+http://localhost:4566?region=eu-west-1&prefix="
    assert settings.account == "000000000000"
    assert (QUEUE, DEAD_QUEUE) == ("relay-transactions", "relay-transactions-dlq")


def test_the_dead_letter_queue_is_polled_every_ten_seconds_for_ten() -> None:
    how = read({}).profile.dlq_consumer

    assert how is not None
    assert (how.interval, how.wait) == (10.0, 10.0)


def test_the_interval_can_be_set_in_milliseconds() -> None:
    how = read({"DLQ_POLL_INTERVAL_MS": "2500"}).profile.dlq_consumer

    assert how is not None
    assert how.interval == 2.5


def test_leases_are_read_from_the_environment() -> None:
    usual, short = read({}), read({"LEASE_MS": "2000", "DLQ_LEASE_MS": "3000"})

    assert (usual.lease, usual.dead_lease) == (60.0, 300.0)
    assert (short.lease, short.dead_lease) == (2.0, 3.0)


def test_the_urls_of_queues_name_them() -> None:
    amazon = read(
        {"SQS_QUEUE_URL": f"{AMAZON}/prod-{QUEUE}", "SQS_DLQ_URL": f"{AMAZON}/prod-{DEAD_QUEUE}"}
    )
    local = read(
        {
            "SQS_QUEUE_URL": f"http://localstack:4566/000000000000/{QUEUE}",
            "SQS_DLQ_URL": f"http://localstack:4566/000000000000/{DEAD_QUEUE}",
            "AWS_REGION": "us-east-1",
        }
    )

    assert amazon.server == "sqs://ap-northeast-2?prefix=prod-"
    assert amazon.account == "123456789012"
    assert amazon.region == "ap-northeast-2"
    assert local.server == "sqs+http://localstack:4566?region=us-east-1&prefix="


def test_the_queues_are_used_as_they_are_and_sqs_retries() -> None:
    settings = read({})

    assert settings.sqs.endswith("&retry=visibility&account=000000000000&create=no")
    assert settings.sqs_for_creation.endswith("&retry=visibility")


def test_reprocessing_is_off_unless_switched_on() -> None:
    switched = [read({}), read({"REPROCESSING": "off"}), read({"REPROCESSING": "on"})]

    assert [one.reprocessing for one in switched] == [False, False, True]


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"SQS_QUEUE_URL": f"{AMAZON}/{QUEUE}"}, "start the DLQ consumer as well"),
        ({"SQS_DLQ_URL": f"{AMAZON}/{DEAD_QUEUE}"}, "start the worker as well"),
        (
            {"SQS_QUEUE_URL": QUEUE, "SQS_DLQ_URL": f"{AMAZON}/{DEAD_QUEUE}"},
            "SQS_QUEUE_URL must be the URL of a queue",
        ),
        (
            {"SQS_QUEUE_URL": f"{AMAZON}/a-{QUEUE}", "SQS_DLQ_URL": f"{AMAZON}/b-{DEAD_QUEUE}"},
            "SQS_DLQ_URL must be the queue a-relay-transactions-dlq",
        ),
        ({"DLQ_POLL_INTERVAL_MS": "often"}, "DLQ_POLL_INTERVAL_MS"),
        (
            {
                "SQS_QUEUE_URL": f"{AMAZON}/{QUEUE}",
                "SQS_DLQ_URL": f"{AMAZON.replace('1234', '9999')}/{DEAD_QUEUE}",
            },
            "in the same account",
        ),
        ({"SQS_QUEUE_URL": f"http://localhost/{QUEUE}", "SQS_DLQ_URL": "x"}, "12 digits"),
        ({"REPROCESSING": "yes"}, "REPROCESSING must be on or off, got 'yes'"),
        ({"REPLAY_LIMIT": "-1"}, "REPLAY_LIMIT is '-1'"),
    ],
)
def test_invalid_settings_are_rejected_with_a_sentence(
    environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(environment)
