"""dlq alarms: rules and alarms for monitoring systems."""

import json
import os

import pytest

from cli.conftest import Command
from deadletter.core.alerts import RULES
from deadletter.observe.alerts import prometheus_rules
from deadletter.observe.dashboard import dashboard
from office.making import make_letter

TOPIC = "arn:aws:sns:eu-west-1:000000000000:on-call"


def test_the_rules_are_written_as_prometheus_reads_them(dlq: Command) -> None:
    ran = dlq("alarms", "prometheus")
    documents = dlq("--json", "alarms", "prometheus").documents

    assert (ran.code, ran.out) == (0, prometheus_rules())
    assert [one["name"] for one in documents] == [rule.name for rule in RULES]


def test_the_dashboard_is_written_as_grafana_imports_it(dlq: Command) -> None:
    ran = dlq("alarms", "grafana")

    assert (ran.code, ran.out) == (0, dashboard())
    assert json.loads(ran.out)["title"] == "Dead letters"


def test_alarms_for_cloudwatch_are_of_all_mailboxes_the_office_knows(dlq: Command) -> None:
    dlq("queues", "create", "mails-dlq")
    dlq("queues", "create", "mails", "--dead-queue", "mails-dlq")
    dlq.do(lambda engine: engine.letters.keep([make_letter(1)]))

    told = dlq("alarms", "cloudwatch", "--topic", TOPIC, "--queue", "q-dlq").documents

    assert sorted(one["AlarmName"] for one in told) == [
        "deadletter-dead-letters-arrive-mails",
        "deadletter-dead-letters-arrive-orders",
        "deadletter-dead-letters-not-kept",
        "deadletter-dead-letters-wait-mails",
        "deadletter-dead-letters-wait-orders",
        "deadletter-queue-not-empty-q-dlq",
    ]
    assert all(one["AlarmActions"] == [TOPIC] for one in told)


def test_a_cloud_that_is_not_there_is_said_to_be_away(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ]:
        monkeypatch.setenv(name, value)

    ran = dlq(
        *("alarms", "cloudwatch", "--put", "--source", "orders"),
        *("--region", "eu-west-1", "--endpoint", "http://127.0.0.1:1"),
    )

    assert ran.code == 5
    assert "CloudWatch" in ran.err
    assert "check that the endpoint is running" in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "no AWS region is set: use --region, or set AWS_REGION"),
        (("--region", "no where"), 2, "check region, endpoint and AWS_PROFILE"),
        (
            ("--region", "eu-west-1", "--endpoint", "nonsense"),
            2,
            "check region, endpoint and AWS_PROFILE",
        ),
        (
            ("--region", "eu-west-1", "--endpoint", "http://127.0.0.1:1"),
            5,
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_a_cloud_that_cannot_be_asked_says_what_to_set(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)

    ran = dlq("alarms", "cloudwatch", "--put", "--source", "orders", *words)

    assert ran.code == code
    assert said in ran.err.replace("\n", " ")
