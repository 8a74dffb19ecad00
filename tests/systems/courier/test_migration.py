"""The collections of a gateway without deadletter are taken over, and nothing of them is lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64

from courier.migration import check_taken_over, count, migrate
from courier.replay import Desk, Wish
from deadletter import ConfigError, State
from deadletter.core.failure import Reason
from deadletter.core.letter import By
from deadletter.testing.fakes import eventually
from systems.courier.rig import Rig

pytestmark = pytest.mark.xdist_group("mongodb_server")

ANNA = By("anna", "mended")
MONTH = 30 * 86_400.0


def an_iso(**ago: float) -> str:
    """A time as the old gateway writes it."""
    time = datetime.now(UTC) - timedelta(**ago)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def a_dead_event(event_id: str, **more: Any) -> dict[str, Any]:
    return {
        "eventId": event_id,
        "idempotencyKey": f"courier-x:{event_id}",
        "eventType": "shipment.status.updated",
        "terminalReasonCode": "DOWNSTREAM_TIMEOUT_EXHAUSTED",
        "terminalReasonMessage": "Retries exhausted",
        "attemptCount": 2,
        "attemptHistory": [
            {"attempt": n, "errorCode": "TIMEOUT", "message": "slow", "timestamp": an_iso(days=1)}
            for n in (1, 2)
        ],
        "payloadSnapshot": {"shipmentId": "shp_1", "weight": 1.5, "cents": Int64(2**40)},
        "reviewStatus": "pending",
        "createdAt": an_iso(days=1),
        "expiresAt": an_iso(days=-89),
        "traceId": f"req_{event_id}",
        **more,
    }


def a_key(event_id: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "idempotencyKey": f"courier-x:{event_id}",
        "eventId": event_id,
        "eventType": "shipment.status.updated",
        "status": status,
        "attemptCount": 1,
        "attemptHistory": [],
        "firstSeenAt": an_iso(days=5),
        "updatedAt": an_iso(days=5),
        "expiresAt": an_iso(days=-25),
        **more,
    }


async def left_behind(rig: Rig) -> None:
    """Fill the collections like the old gateway, with its indexes."""
    letters, keys = rig.db["dead_letter_events"], rig.db["processed_events"]
    for name in (letters.name, keys.name):
        await rig.db.drop_collection(f"{name}_before")
    await letters.create_index("expiresAt", expireAfterSeconds=0, name="ttl_expiresAt")
    await keys.create_index("idempotencyKey", unique=True, name="ux_idempotency_key")
    states = ("pending", "reviewed", "replayed", "closed")
    await letters.insert_many([a_dead_event(f"evt_{s}", reviewStatus=s) for s in states])
    await keys.insert_many(
        [
            a_key("evt_done", "processed"),
            a_key("evt_pending", "dead_lettered"),
            a_key("evt_stuck", "processing", expiresAt=None),
            a_key("evt_old", "processed", expiresAt=an_iso(days=1)),
        ]
    )


async def test_dead_events_become_letters_in_their_state(rig: Rig) -> None:
    await left_behind(rig)

    taken = await migrate(rig.settings, ttl=MONTH)

    assert (taken.letters, taken.keys, taken.left) == (4, 2, 2)
    letters = {one.head.business_key: one for one in await rig.letters()}
    assert {key: one.head.state for key, one in letters.items()} == {
        "courier-x:evt_pending": State.PENDING,
        "courier-x:evt_reviewed": State.REVIEWED,
        "courier-x:evt_replayed": State.REPLAYED,
        "courier-x:evt_closed": State.CLOSED,
    }
    letter = letters["courier-x:evt_pending"]
    assert letter.head.reason is Reason.ATTEMPTS_EXHAUSTED
    assert (letter.head.code, letter.head.trace_id) == ("DOWNSTREAM_TIMEOUT", "req_evt_pending")
    assert [(one.number, one.code, one.text) for one in letter.story()] == [
        (1, "TIMEOUT", "slow"),
        (2, "TIMEOUT", "slow"),
    ]
    age = datetime.now(UTC) - letter.head.dead_at
    assert timedelta(days=1) <= age < timedelta(days=1, minutes=10)
    assert await (await rig.office.letters()).verify() == []


async def test_the_documents_of_letters_that_were_taken_over_have_the_documented_fields(
    rig: Rig,
) -> None:
    await left_behind(rig)
    await migrate(rig.settings, ttl=MONTH)

    found = await rig.db["dead_letter_events"].find_one({"eventId": "evt_replayed"})

    assert found is not None
    old = a_dead_event("evt_replayed")
    same = ("idempotencyKey", "eventType", "terminalReasonCode", "attemptCount", "traceId")
    assert {name: found[name] for name in same} == {name: old[name] for name in same}
    assert found["payloadSnapshot"] == old["payloadSnapshot"]
    assert found["reviewStatus"] == "replayed"


async def test_finished_keys_are_remembered_as_long_as_they_were(rig: Rig) -> None:
    await left_behind(rig)
    await migrate(rig.settings, ttl=MONTH)
    await rig.work()

    await rig.report("evt_done")
    await eventually(lambda: rig.fates() == ["duplicate"], within=20)

    assert rig.stand.seen == []
    record = await rig.ledger("courier-x:evt_done")
    left = record["expire_at"] - datetime.now(UTC)
    assert timedelta(days=25) - timedelta(minutes=10) < left < timedelta(days=25, hours=2)


async def test_keys_that_were_stuck_or_expired_block_nothing(rig: Rig) -> None:
    await left_behind(rig)
    await migrate(rig.settings, ttl=MONTH)
    await rig.work()

    for event_id in ("evt_stuck", "evt_old"):
        await rig.report(event_id)
        await rig.until("processed", f"courier-x:{event_id}")


async def test_an_event_that_was_taken_over_is_replayed_to_its_end(rig: Rig) -> None:
    await left_behind(rig)
    await migrate(rig.settings, ttl=MONTH)
    await rig.work()

    wish = Wish(limit=1, where='"courier-x:evt_pending"', by=ANNA, wait=20)
    await Desk(await rig.office.engine()).replay(wish)

    assert [one.key for one in rig.stand.seen] == ["courier-x:evt_pending"]
    assert await rig.is_at("processed", "courier-x:evt_pending")


async def test_a_migration_can_be_repeated_and_keeps_the_old_documents(rig: Rig) -> None:
    await left_behind(rig)
    assert await count(rig.settings) == {"dead_letter_events": 4, "processed_events": 4}

    await migrate(rig.settings, ttl=MONTH)
    # As if it had died before it marked the last documents.
    await rig.db["dead_letter_events_before"].update_many({}, {"$unset": {"takenOver": ""}})
    await rig.db["processed_events_before"].update_many({}, {"$unset": {"takenOver": ""}})
    again = await migrate(rig.settings, ttl=MONTH)

    assert again.letters == 0
    assert (await rig.ledger("courier-x:evt_done"))["path"][-1]["state"] == "processed"
    assert await rig.db["processed_events"].count_documents({}) == 2
    assert len(await rig.letters()) == 4
    assert await rig.db["dead_letter_events_before"].count_documents({}) == 4
    assert await rig.db["processed_events_before"].count_documents({}) == 4


async def test_a_worker_does_not_start_before_the_migration(rig: Rig) -> None:
    await left_behind(rig)

    worker = await rig.start("-m", "courier.worker")
    _, err = await worker.communicate()

    assert worker.returncode == 2
    assert "python -m courier.migration" in err.decode()
    await migrate(rig.settings, ttl=MONTH)
    await check_taken_over(rig.settings)


async def test_the_check_names_the_database(rig: Rig) -> None:
    await left_behind(rig)

    with pytest.raises(ConfigError, match="belong to a gateway without deadletter"):
        await check_taken_over(rig.settings)


async def test_the_command_counts_and_takes_over(rig: Rig) -> None:
    await left_behind(rig)

    assert "4 dead events and 4 keys would be" in await rig.command(
        "courier.migration", "--dry-run"
    )
    said = await rig.command("courier.migration")

    assert said.splitlines()[0] == "4 dead events and 2 finished keys taken over."
