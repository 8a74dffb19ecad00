"""The fields that documents in MongoDB have, for those who read the collections themselves."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from courier.replay import Desk, Wish
from deadletter import App, State
from deadletter.core.letter import By
from deadletter.office.letters import Letters
from deadletter.system import SystemClock
from systems.courier.rig import PAYLOAD, Rig, an_event

pytestmark = pytest.mark.xdist_group("mongodb_server")

ANNA = By("anna", "mended")
SECOND = timedelta(seconds=1)


async def letter_document(rig: Rig) -> dict[str, Any]:
    (document,) = await rig.db["dead_letter_events"].find().to_list()
    return document


async def died(rig: Rig, **how: Any) -> dict[str, Any]:
    """Let an event die, and return its document."""
    rig.fault(**how)
    answer = await rig.post(an_event(), headers={"x-request-id": "req_a1b2c3"})
    assert answer.status_code == 202
    await rig.work()
    await rig.until("dead_lettered")
    await rig.rest()
    rig.stand.faults.clear()
    return await letter_document(rig)


FIELDS: dict[str, object] = {
    "eventId": "evt_123",
    "eventType": "shipment.status.updated",
    "idempotencyKey": "courier-x:evt_123",
    "traceId": "req_a1b2c3",
    "attemptCount": 3,
    "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
    "terminalReasonMessage": "answered 504: no word from the depot",
    "payloadSnapshot": msgspec.json.decode(PAYLOAD),
    "reviewStatus": "pending",
}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_dead_event_has_each_documented_field(rig: Rig, field: str) -> None:
    document = await died(
        rig, status=504, code="DOWNSTREAM_TIMEOUT", message="no word from the depot"
    )

    assert document[field] == FIELDS[field]


async def test_a_dead_event_has_every_attempt_and_its_times(rig: Rig) -> None:
    document = await died(rig, status=504, code="DOWNSTREAM_TIMEOUT", message="slow")
    letter = await rig.letter()

    history = document["attemptHistory"]
    assert [one["attempt"] for one in history] == [1, 2, 3]
    assert {one["outcome"] for one in history} == {"failed"}
    assert {one["errorCode"] for one in history} == {"DOWNSTREAM_TIMEOUT"}
    assert {one["message"] for one in history} == {"answered 504: slow"}
    for one, attempt in zip(history, letter.story(), strict=True):
        assert abs(one["timestamp"] - attempt.at) < SECOND
    for name in ("deadLetteredAt", "createdAt"):
        assert isinstance(document[name], datetime)
        assert abs(document[name] - letter.head.dead_at) < SECOND
    assert "expiresAt" not in document  # an index on it would delete without an audit


async def test_a_payload_that_no_document_can_hold_is_kept_as_text(rig: Rig) -> None:
    rig.fault(status=422, message="validation failed")
    await rig.report(payload=msgspec.Raw(b'{"n": 123456789012345678901234567890}'))

    await rig.work()
    await rig.until("dead_lettered")

    document = await letter_document(rig)
    assert document["payloadSnapshot"] == '{"n": 123456789012345678901234567890}'


async def test_the_review_status_follows_the_letter_whoever_moves_it(rig: Rig) -> None:
    document = await died(rig, status=422, message="validation failed")
    seen = [document["reviewStatus"]]
    # An office opened by its bare URL, as `dlq` does it.
    async with App(rig.settings.queue_url, office=rig.settings.mongodb_url) as bare:
        letters = Letters(await bare.letters(), SystemClock())
        await letters.review([document["_id"]], ANNA)
        seen.append((await letter_document(rig))["reviewStatus"])
        await rig.work()
        await Desk(await bare.engine()).replay(Wish(limit=1, by=ANNA, wait=20))
        seen.append((await letter_document(rig))["reviewStatus"])
        await letters.close([document["_id"]], ANNA)
        seen.append((await letter_document(rig))["reviewStatus"])

    assert seen == ["pending", "reviewed", "replayed", "closed"]


async def test_a_second_death_is_in_the_documented_fields(rig: Rig) -> None:
    await died(rig, status=422, message="validation failed")
    rig.fault(status=422, message="malformed address")
    await rig.work()

    await Desk(await rig.office.engine()).replay(Wish(limit=1, by=ANNA, wait=20))

    document = await letter_document(rig)
    assert document["terminalReasonCode"] == "MALFORMED"
    assert [one["errorCode"] for one in document["attemptHistory"]] == ["VALIDATION", "MALFORMED"]
    assert document["reviewStatus"] == "pending"


async def test_a_processed_event_has_the_documented_fields(rig: Rig) -> None:
    rig.fault(status=503, times=2)
    await rig.report()
    await rig.work()
    await rig.until("processed")

    record = await rig.ledger()

    assert record["idempotencyKey"] == "courier-x:evt_123"
    assert record["status"] == "processed"
    assert record["attemptCount"] == 3
    assert record["firstSeenAt"] <= record["updatedAt"]
    assert record["expiresAt"] == record["expire_at"]
    assert timedelta(days=30) - SECOND <= record["expiresAt"] - record["updatedAt"]


async def test_the_status_of_a_key_is_processing_meanwhile(rig: Rig) -> None:
    rig.fault(delay_ms=1000, times=1)
    await rig.report()

    await rig.work()
    await rig.until("processing")

    record = await rig.ledger()
    assert (record["status"], record["attemptCount"]) == ("processing", 1)
    assert "expiresAt" not in record
    await rig.until("processed")


class TestInOrder:
    """In this office no step is left out: pending, reviewed, replayed, closed."""

    async def test_a_pending_letter_is_not_closed(self, rig: Rig) -> None:
        id_ = (await died(rig, status=422, message="validation failed"))["_id"]
        letters = Letters(await rig.office.letters(), SystemClock())

        moved = await letters.close([id_], ANNA)

        assert (moved.moved, moved.skipped) == (0, {"is pending": 1})
        assert (await rig.letter()).head.state is State.PENDING

    async def test_a_reviewed_letter_is_not_closed_before_it_is_replayed(self, rig: Rig) -> None:
        id_ = (await died(rig, status=422, message="validation failed"))["_id"]
        letters = Letters(await rig.office.letters(), SystemClock())
        await letters.review([id_], ANNA)

        assert (await letters.close([id_], ANNA)).skipped == {"is reviewed": 1}

    async def test_a_pending_letter_is_not_replayed(self, rig: Rig) -> None:
        id_ = (await died(rig, status=422, message="validation failed"))["_id"]

        said = await rig.command(
            *("deadletter.cli", "replay", "plan", f"id:{id_}"),
            DLQ_URL=rig.settings.queue_url,
            DLQ_OFFICE=rig.settings.mongodb_url,
        )

        assert "wrong-state" in said or "not open" in said
        assert (await rig.letter()).head.state is State.PENDING
        assert await rig.waiting() == []

    async def test_a_replay_begun_before_the_review_sends_nothing(self, rig: Rig) -> None:
        id_ = (await died(rig, status=422, message="validation failed"))["_id"]
        desk = Desk(await rig.office.engine())

        begun = await desk.sender.begin([id_], ANNA, query="")
        await desk.sender.run(begun.id)

        assert (await rig.letter()).head.state is State.PENDING
        assert await rig.waiting() == []
