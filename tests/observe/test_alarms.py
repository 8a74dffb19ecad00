"""Names as CloudWatch takes them, for one that it does not take spoils them all."""

import re
from typing import Any

import pytest

from deadletter.core.events import LetterHandled
from deadletter.observe.alerts import alarms
from deadletter.observe.cloudwatch import CloudWatch

# What the service says of a value: ASCII, something in it, no colon in front.
TAKEN = re.compile(r"(?!:)[\x20-\x7e]*[\x21-\x7e][\x20-\x7e]*")


class Client:
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.numbers: list[dict[str, Any]] = []

    async def put_metric_data(
        self,
        Namespace: str,  # noqa: N803 -- theirs
        MetricData: list[dict[str, Any]],  # noqa: N803
    ) -> None:
        self.numbers += MetricData


@pytest.mark.parametrize(
    "name", ["grüße", ":orders", "a\x00b", "", " ", "x" * 3_000, "\ud800", "日" * 900]
)
async def test_any_name_of_a_mailbox_can_be_told(name: str) -> None:
    watch, client = CloudWatch(), Client()
    watch(LetterHandled(mailbox=name, letter_id="l", seconds=1.0, age=2.0))

    await watch.publish(client)

    values = [one["Dimensions"][0]["Value"] for one in client.numbers]
    assert values
    assert all(TAKEN.fullmatch(value) and len(value) <= 1_024 for value in values)


def test_a_plain_name_stays_what_it_is_and_an_alarm_means_the_same() -> None:
    told = {
        one["Dimensions"][0]["Value"]
        for one in alarms(sources=["orders", "grüße"])
        if one["Dimensions"]
    }

    assert told == {"orders", "gr\\xfc\\xdfe"}
