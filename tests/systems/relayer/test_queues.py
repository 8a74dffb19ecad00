"""The two queues, as SQS has them."""

import json

import pytest

from relayer.settings import DEAD_QUEUE, QUEUE
from servers.sqs import Sqs
from systems.relayer.rig import Relay

pytestmark = pytest.mark.xdist_group("sqs_server")


async def test_the_queue_redrives_to_a_terminal_standard_one(relay: Relay) -> None:
    main = await relay.attributes(QUEUE)
    dead = await relay.attributes(DEAD_QUEUE)
    policy = json.loads(main["RedrivePolicy"])

    assert policy == {"deadLetterTargetArn": dead["QueueArn"], "maxReceiveCount": "3"}
    assert main["QueueArn"].endswith("relay-transactions")
    assert dead["QueueArn"].endswith("relay-transactions-dlq")
    assert not dead.get("RedrivePolicy")
    assert dead.get("FifoQueue", "false") == "false"


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


async def test_a_queue_that_lost_its_policy_gets_it_back(relay: Relay) -> None:
    await relay.raw.set_queue_attributes(
        QueueUrl=relay.url(QUEUE), Attributes={"RedrivePolicy": ""}
    )
    assert not (await relay.attributes(QUEUE)).get("RedrivePolicy")

    async with relay.consuming():
        policy = (await relay.attributes(QUEUE))["RedrivePolicy"]

    assert json.loads(policy)["maxReceiveCount"] == "3"
