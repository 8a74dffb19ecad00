"""What the gateway accepts, and what it makes of it."""

from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest

from courier.settings import MAIN
from courier.signatures import sign, signed_headers
from deadletter import Message
from engines.bullmq_rig import fresh
from servers import Server
from systems.courier.rig import PAYLOAD, SECRET, Rig, an_event, rigged

pytestmark = pytest.mark.xdist_group("redis_server")

NOW = 1_772_107_201


@pytest.fixture
async def rig(redis_server: Server) -> AsyncIterator[Rig]:
    """Without an office: the gateway needs none."""
    async with rigged(fresh(redis_server.url), "memory://") as rig:
        yield rig


async def queued(rig: Rig) -> Message:
    """The only message in the main queue."""
    broker = (await rig.office.engine()).broker
    (one,) = await broker.source(MAIN).receive(limit=10, wait=0, lease=60)
    return one.message


async def test_an_accepted_event_waits_in_the_main_queue_with_all_its_fields(rig: Rig) -> None:
    rig.now = lambda: NOW + 0.5
    body = an_event()

    answer = await rig.post(body, headers={"x-request-id": "req_a1b2c3"})

    assert answer.status_code == 202
    assert answer.json() == {
        "status": "queued",
        "eventId": "evt_123",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
    }
    message = await queued(rig)
    assert msgspec.json.decode(message.body) == {
        "eventId": "evt_123",
        "eventType": "shipment.status.updated",
        "occurredAt": "2026-02-26T12:00:00Z",
        "source": "courier-x",
        "idempotencyKey": "courier-x:evt_123",
        "traceId": "req_a1b2c3",
        "signatureMeta": {
            "algorithm": "hmac-sha256",
            "timestamp": NOW,
            "signature": sign(SECRET, NOW, body).hex(),
        },
        "payload": msgspec.json.decode(PAYLOAD),
        "receivedAt": "2026-02-26T12:00:01Z",
        "attempt": 1,
    }
    assert PAYLOAD in message.body
    assert message.header("x-producer") == "gateway-api"
    assert message.idempotency_key == "courier-x:evt_123"


QUEUED: dict[str, object] = {
    "eventId": "evt_123",
    "eventType": "shipment.status.updated",
    "occurredAt": "2026-02-26T12:00:00Z",
    "source": "courier-x",
    "idempotencyKey": "courier-x:evt_123",
    "traceId": "req_a1b2c3",
    "signatureMeta.algorithm": "hmac-sha256",
    "signatureMeta.timestamp": NOW,
    "signatureMeta.signature": sign(SECRET, NOW, an_event()).hex(),
    "payload": msgspec.json.decode(PAYLOAD),
    "receivedAt": "2026-02-26T12:00:01Z",
    "attempt": 1,
}


@pytest.mark.parametrize("field", QUEUED)
async def test_a_queued_event_has_each_documented_field(rig: Rig, field: str) -> None:
    rig.now = lambda: NOW + 0.5
    await rig.post(an_event(), headers={"x-request-id": "req_a1b2c3"})

    found = msgspec.json.decode((await queued(rig)).body)
    for name in field.split("."):
        found = found[name]

    assert found == QUEUED[field]
    assert type(found) is type(QUEUED[field])


async def test_the_producer_names_itself(rig: Rig) -> None:
    await rig.report()

    assert (await queued(rig)).header("x-producer") == "gateway-api"


async def test_times_are_queued_in_utc(rig: Rig) -> None:
    await rig.report(occurredAt="2026-02-26T14:00:00+02:00")

    event = msgspec.json.decode((await queued(rig)).body)

    occurred = datetime.fromisoformat(event["occurredAt"])
    assert occurred.utcoffset() == timedelta()
    assert occurred == datetime(2026, 2, 26, 12, tzinfo=UTC)
    assert event["receivedAt"].endswith("Z")


async def test_a_courier_may_name_the_key_and_leave_out_when_it_occurred(rig: Rig) -> None:
    await rig.report(idempotencyKey="mine-1", occurredAt=None)

    message = await queued(rig)

    event = msgspec.json.decode(message.body)
    assert event["idempotencyKey"] == message.idempotency_key == "mine-1"
    assert "occurredAt" not in event
    assert event["traceId"].startswith("req_")


async def test_a_signature_may_be_base64(rig: Rig) -> None:
    body = an_event()
    stamp = int(rig.now())
    signature = b64encode(sign(SECRET, stamp, body)).decode()

    answer = await rig.post(body, headers={"x-signature": signature})

    assert answer.status_code == 202
    event = msgspec.json.decode((await queued(rig)).body)
    assert event["signatureMeta"]["signature"] == signature


def _forged(how: str, body: bytes, now: int) -> tuple[bytes, dict[str, str]]:
    """A body and headers with something wrong about them."""
    signed = signed_headers(SECRET, now, body)
    match how:
        case "another secret":
            return body, signed_headers("some other letters", now, body)
        case "a changed byte":
            return body.replace(b"1.10", b"1.1 "), signed
        case "a freshened timestamp":
            old = signed_headers(SECRET, now - 1000, body)
            return body, {**old, "x-signature-timestamp": str(now)}
        case "too old":
            return body, signed_headers(SECRET, now - 302, body)
        case "too far ahead":
            return body, signed_headers(SECRET, now + 302, body)
        case "another algorithm":
            return body, {**signed, "x-signature-algorithm": "hmac-md5"}
        case "no time":
            return body, {**signed, "x-signature-timestamp": "yesterday"}
        case _:
            return body, {**signed, "x-signature": ""}


@pytest.mark.parametrize(
    "how",
    [
        "another secret",
        "a changed byte",
        "a freshened timestamp",
        "too old",
        "too far ahead",
        "another algorithm",
        "no time",
        "none",
    ],
)
async def test_unsigned_and_stale_events_are_rejected_alike(rig: Rig, how: str) -> None:
    body, headers = _forged(how, an_event(), int(rig.now()))

    answer = await rig.post(body, headers=headers)

    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "status": 401,
        "code": "INVALID_SIGNATURE",
        "detail": "The signature does not fit these bytes at this time.",
    }
    assert await rig.waiting() == []


async def test_a_signature_is_good_for_the_length_of_its_window(rig: Rig) -> None:
    body = an_event()
    headers = signed_headers(SECRET, NOW, body)
    rig.now = lambda: NOW + 300.0

    assert (await rig.post(body, headers=headers)).status_code == 202

    rig.now = lambda: NOW + 300.5
    assert (await rig.post(body, headers=headers)).status_code == 401


async def test_signatures_are_compared_in_constant_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, right: bytes) -> bool:
        compared.append((given, right))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare)

    answer = await rig.post(an_event())

    assert answer.status_code == 401  # nothing but that comparison lets it in
    assert len(compared) == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (an_event(""), "eventId"),
        (an_event(eventType=None), "eventType"),
        (an_event(source=None), "source"),
        (an_event(payload=None), "payload"),
        (an_event(payload=[1, 2]), "payload must be an object"),
        (an_event(occurredAt="yesterday"), "occurredAt"),
        (an_event(occurredAt="2026-02-26T12:00:00"), "occurredAt"),
        (b"{", "truncated"),
        (b"[" * 5000, ""),
        (an_event(payload={"name": "x"}).replace(b'"x"', b'"\xff"'), "utf-8"),
    ],
)
async def test_invalid_events_are_rejected_with_a_reason(rig: Rig, body: bytes, says: str) -> None:
    answer = await rig.post(body)

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_PAYLOAD")
    assert says in answer.json()["detail"]
    assert await rig.waiting() == []


async def test_other_media_types_and_huge_bodies_are_refused(rig: Rig) -> None:
    plain = await rig.post(an_event(), headers={"content-type": "text/plain"})
    huge = await rig.post(an_event(payload={"x": "y" * 300_000}))

    assert (plain.status_code, plain.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert (huge.status_code, huge.json()["code"]) == (413, "PAYLOAD_TOO_LARGE")
    assert await rig.waiting() == []


async def test_the_gateway_says_how_it_is(rig: Rig) -> None:
    answer = await rig.client.get(f"{rig.url}/health")
    nothing = await rig.client.get(f"{rig.url}/v2")

    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert isinstance(nothing, httpx.Response)
    assert nothing.status_code == 404
