"""The HTTP API, over HTTP."""

import json
from typing import Any

import pytest

from relayer.settings import QUEUE
from servers import Server
from systems.relayer.rig import Relay, request

pytestmark = pytest.mark.xdist_group("sqs_server")


WISHES: list[tuple[dict[str, Any], bool]] = [
    ({}, False),
    ({"retryOnFailure": None}, False),
    ({"retryOnFailure": False}, False),
    ({"retryOnFailure": True}, True),
]


async def on_the_queue(relay: Relay) -> dict[str, Any]:
    """Take one message from the queue, as anybody can."""
    got = await relay.raw.receive_message(QueueUrl=relay.url(QUEUE), WaitTimeSeconds=5)
    (one,) = got["Messages"]
    handle = one["ReceiptHandle"]
    await relay.raw.delete_message(QueueUrl=relay.url(QUEUE), ReceiptHandle=handle)
    body: dict[str, Any] = json.loads(one["Body"])
    return body


@pytest.mark.parametrize("kind", ["direct", "gasless"])
async def test_a_transaction_may_wish_to_be_retried(relay: Relay, kind: str) -> None:
    for given, meant in WISHES:
        id_ = await relay.ask(kind, **given)

        told = await relay.status(id_)
        travels = await on_the_queue(relay)

        assert (told["status"], told["type"]) == ("queued", kind)
        assert told["retryOnFailure"] is meant, given
        assert travels["transactionId"] == id_
        assert travels["retryOnFailure"] is meant, given


async def test_invalid_requests_are_rejected(relay: Relay) -> None:
    wrong = [
        ("direct", request(to="somewhere")),
        ("direct", request(retryOnFailure="yes")),
        ("direct", request(value=-1)),
        ("gasless", request()),
        ("gasless", request("gasless", signature="0x00")),
    ]
    for kind, body in wrong:
        answer = await relay.api.post(f"/relay/{kind}", json=body)
        assert answer.status_code == 400, body

    assert (await relay.api.get("/relay/status/nobody")).status_code == 404
    assert await relay.depth(QUEUE) == 0


async def test_the_chain_says_how_it_went(relay: Relay) -> None:
    id_ = await relay.ask()
    news = {"transactionId": id_, "status": "confirmed", "hash": "0xabc"}
    token = {"Authorization": "Bearer secret"}

    stranger = await relay.api.post("/webhook", json=news)
    before = await relay.status(id_)
    told = await relay.api.post("/webhook", json=news, headers=token)
    nonsense = await relay.api.post("/webhook", json=news | {"status": "queued"}, headers=token)

    assert (stranger.status_code, before["status"]) == (401, "queued")
    assert (told.status_code, nonsense.status_code) == (204, 422)
    after = await relay.status(id_)
    assert (after["status"], after["hash"]) == ("confirmed", "0xabc")


async def test_without_its_queue_nothing_is_promised(relay: Relay, sqs_server: Server) -> None:
    sqs_server.stop()
    answer = await relay.api.post("/relay/direct", json=request())
    sqs_server.start()

    rows = await relay.database.run("SELECT status, error_message FROM transactions")
    assert answer.status_code == 503
    assert [tuple(row) for row in rows] == [("failed", "it could not be queued")]
