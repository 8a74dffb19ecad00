"""The two queues, as SQS has them: made on request, checked at start-up, never changed."""

import asyncio
import json
import re
from typing import Any

import pytest

from deadletter import ConfigError
from relayer.__main__ import main
from relayer.consumer import opened_consumers
from relayer.settings import DEAD_QUEUE, QUEUE, read
from servers.sqs import Sqs
from systems.relayer.rig import Relay

pytestmark = pytest.mark.xdist_group("sqs_server")


async def test_three_receives_are_the_limit_of_the_queue(relay: Relay) -> None:
    policy = json.loads((await relay.attributes(QUEUE))["RedrivePolicy"])

    assert policy["maxReceiveCount"] == "3"


async def test_the_queue_redrives_to_the_dead_letter_queue(relay: Relay) -> None:
    policy = json.loads((await relay.attributes(QUEUE))["RedrivePolicy"])

    assert policy["deadLetterTargetArn"] == (await relay.attributes(DEAD_QUEUE))["QueueArn"]


async def test_the_dead_letter_queue_is_a_standard_queue(relay: Relay) -> None:
    dead = await relay.attributes(DEAD_QUEUE)

    assert dead.get("FifoQueue", "false") == "false"
    assert dead["QueueArn"].endswith("relay-transactions-dlq")


async def test_the_dead_letter_queue_is_terminal(relay: Relay) -> None:
    assert not (await relay.attributes(DEAD_QUEUE)).get("RedrivePolicy")


async def test_the_service_works_with_two_queues_and_no_other(relay: Relay) -> None:
    id_ = await relay.dies()
    async with relay.consuming():
        await relay.becomes(id_, "failed")
        await relay.drained(DEAD_QUEUE)

    assert await relay.queues() == {QUEUE, DEAD_QUEUE}


async def test_without_a_prefix_the_names_are_the_bare_ones(relay: Relay, sqs_server: Sqs) -> None:
    base = f"{sqs_server.url}/000000000000"
    environment = relay.environment | {
        "SQS_QUEUE_URL": f"{base}/relay-transactions",
        "SQS_DLQ_URL": f"{base}/relay-transactions-dlq",
    }
    async with Relay.opened(environment, relay.raw, relay.stub):
        urls = (await relay.raw.list_queues(QueueNamePrefix=QUEUE))["QueueUrls"]

    names = {url.rpartition("/")[2] for url in urls}
    assert names == {"relay-transactions", "relay-transactions-dlq"}


DIFFERENT: list[tuple[dict[str, str], str]] = [
    ({"RedrivePolicy": ""}, "has no redrive policy"),
    ({"maxReceiveCount": "5"}, "with maxReceiveCount 5"),
    ({"deadLetterTargetArn": "another"}, "has a redrive policy to .*another"),
]


async def changed(relay: Relay, change: dict[str, str]) -> None:
    """Change the redrive policy of the queue, as the infrastructure may."""
    policy: Any = json.loads((await relay.attributes(QUEUE))["RedrivePolicy"])
    if "deadLetterTargetArn" in change:
        name = relay.url(QUEUE).rpartition("/")[2] + "-another"
        await relay.raw.create_queue(QueueName=name)
        arn = policy["deadLetterTargetArn"].rpartition(":")[0]
        change = {"deadLetterTargetArn": f"{arn}:{name}"}
    text = change.get("RedrivePolicy", json.dumps(policy | change))
    await relay.raw.set_queue_attributes(
        QueueUrl=relay.url(QUEUE), Attributes={"RedrivePolicy": text}
    )


@pytest.mark.parametrize(("change", "sentence"), DIFFERENT, ids=["none", "count", "target"])
async def test_a_start_says_what_differs_and_changes_nothing(
    relay: Relay,
    change: dict[str, str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in relay.environment.items():
        monkeypatch.setenv(name, value)
    await changed(relay, change)
    before = await relay.attributes(QUEUE)

    for word in ("api", "consumer"):
        assert await asyncio.to_thread(main, [word]) == 2
        assert re.search(sentence, capsys.readouterr().err), word

    after = await relay.attributes(QUEUE)
    assert after.get("RedrivePolicy") == before.get("RedrivePolicy")
    assert after["LastModifiedTimestamp"] == before["LastModifiedTimestamp"]


async def test_a_start_makes_no_queue(environment: dict[str, str], raw: Any) -> None:
    with pytest.raises(ConfigError, match=f"no queue {QUEUE}; there is no queue {DEAD_QUEUE}"):
        async with opened_consumers(read(environment)):
            pass

    name = environment["SQS_QUEUE_URL"].rpartition("/")[2]
    assert not (await raw.list_queues(QueueNamePrefix=name)).get("QueueUrls")


async def test_queues_are_made_on_request_and_existing_policies_stay(
    relay: Relay, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in relay.environment.items():
        monkeypatch.setenv(name, value)

    async def queues(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["queues", *words])
        return code, capsys.readouterr().out

    fine = await queues()
    await changed(relay, {"RedrivePolicy": ""})
    without = await queues()
    made = await queues("--create")
    await changed(relay, {"maxReceiveCount": "5"})
    other = await queues("--create")

    assert fine == (0, "the queues are as the service needs them\n")
    assert without[0] == 1
    assert "has no redrive policy" in without[1]
    assert made == fine
    assert other[0] == 1
    assert "maxReceiveCount 5" in other[1]
    policy = json.loads((await relay.attributes(QUEUE))["RedrivePolicy"])
    assert policy["maxReceiveCount"] == "5"


async def test_the_account_in_the_url_is_the_one_that_is_used(relay: Relay) -> None:
    """There are queues of these names, but in another account."""
    environment = {
        name: value.replace("/000000000000/", "/999988887777/")
        for name, value in relay.environment.items()
    }

    with pytest.raises(ConfigError, match=f"there is no queue {QUEUE}"):
        async with opened_consumers(read(environment)):
            pass
