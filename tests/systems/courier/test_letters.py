"""What is left of an event that could not be delivered, in both places."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from courier.settings import DLQ
from deadletter import State
from deadletter.testing.fakes import eventually
from engines.mongodb_rig import emptied
from engines.redis_rig import fresh
from servers import Server
from systems.courier.rig import PAYLOAD, Rig, rigged

pytestmark = pytest.mark.xdist_group("mongodb_server")


async def test_a_dead_event_is_in_the_collection_and_in_the_queue(rig: Rig) -> None:
    began = datetime.now(UTC)
    rig.fault(status=504, code="DOWNSTREAM_TIMEOUT", message="no word from the depot")
    answer = await rig.post(
        msgspec.json.encode(
            {
                "eventId": "evt_123",
                "eventType": "shipment.status.updated",
                "source": "courier-x",
                "payload": msgspec.Raw(PAYLOAD),
            }
        ),
        headers={"x-request-id": "req_a1b2c3"},
    )
    assert answer.status_code == 202

    await rig.work()
    letter = await rig.until_letter(State.PENDING)
    await rig.rest()

    (kept,) = await rig.db["dead_letter_events"].find().to_list()
    assert kept["_id"] == letter.id
    assert kept["source"] == "courier-events-main"
    (copy,) = await rig.copies()
    dead_at = datetime.fromisoformat(copy.pop("deadLetteredAt"))
    assert dead_at.utcoffset() == timedelta()
    assert began <= dead_at <= datetime.now(UTC)
    assert copy == {
        "eventId": "evt_123",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
        "attemptCount": 3,
        "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "terminalReasonMessage": "answered 504: no word from the depot",
        "attemptHistory": [
            {"attempt": n, "outcome": "failed", "errorCode": "DOWNSTREAM_TIMEOUT"}
            for n in (1, 2, 3)
        ],
        "payloadSnapshot": msgspec.json.decode(PAYLOAD),
    }


async def test_the_snapshot_is_the_payload_byte_for_byte(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    await rig.report()

    await rig.work()
    await rig.until_letter(State.PENDING)
    await rig.rest()

    broker = (await rig.office.engine()).broker
    (copy,) = await broker.source(DLQ).receive(limit=10, wait=0, lease=60)
    assert b'"payloadSnapshot":' + PAYLOAD in copy.message.body
    assert copy.message.header("dlq-id") == (await rig.letter()).id


async def test_an_event_that_died_at_once_says_so(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed: no such status")
    await rig.report()

    await rig.work()
    await rig.until_letter(State.PENDING)
    await rig.rest()

    (copy,) = await rig.copies()
    assert copy["terminalReasonCode"] == "VALIDATION"
    assert copy["attemptCount"] == 1
    assert copy["attemptHistory"] == [
        {"attempt": 1, "outcome": "failed", "errorCode": "VALIDATION"}
    ]


async def test_a_letter_tells_every_attempt_with_its_time_and_stack(rig: Rig) -> None:
    rig.fault(status=503, code="ECONNREFUSED", times=1)
    rig.fault(status=503, message="full")
    await rig.report()

    await rig.work()
    letter = await rig.until_letter(State.PENDING)

    story = letter.story()
    assert [one.code for one in story] == ["ECONNREFUSED", "HTTP_503", "HTTP_503"]
    assert all("hand_over" in one.stack for one in story)
    assert sorted(one.at for one in story) == [one.at for one in story]
    assert letter.head.consumer == "gateway-worker"


async def test_a_body_that_is_no_event_is_kept_and_copied_as_well(rig: Rig) -> None:
    await rig.office.send("courier-events-main", b"\xff\xfe no JSON")

    await rig.work()
    letter = await rig.until_letter(State.PENDING)
    await rig.rest()

    assert letter.message.body == b"\xff\xfe no JSON"
    (copy,) = await rig.copies()
    assert copy["payloadEncoding"] == "base64"
    assert copy["terminalReasonCode"] == "MALFORMED"


class TestOnAnotherEngine:
    @pytest.fixture
    async def rig(self, redis_server: Server, mongodb_server: Server) -> AsyncIterator[Rig]:
        """Queues that are not BullMQ's; nothing else is different."""
        mongodb = await emptied(mongodb_server.url)
        async with rigged(fresh(redis_server.url), mongodb) as rig:
            yield rig

    async def test_nothing_depends_on_whose_queues_they_are(self, rig: Rig) -> None:
        rig.fault("evt_2", status=422, message="validation failed")
        await rig.report("evt_1")
        await rig.report("evt_1")
        await rig.report("evt_2")

        await rig.work()
        letter = await rig.until_letter(State.PENDING)
        await eventually(lambda: sorted(rig.fates()) == ["duplicate", "handled"], within=20)
        await rig.rest()

        assert letter.head.business_key == "courier-x:evt_2"
        assert [one["eventId"] for one in await rig.copies()] == ["evt_2"]
