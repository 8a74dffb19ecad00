"""What a message looks like on SQS, and what those of others look like to us."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from deadletter.brokers.sqs.engine import SqsEngine
from deadletter.brokers.sqs.message_format import (
    ATTRIBUTE,
    TYPES,
    Envelope,
    entry_of,
    envelope_of,
    fit,
    headers_of,
    name_in,
    native_attributes,
    read,
)
from deadletter.brokers.sqs.sender import MISSING
from deadletter.core.errors import ConfigError, NotFound, Refused
from deadletter.core.signing import Keys
from deadletter.ports import PROCESS_KEYS, Acked, Fate
from deadletter.testing.fakes import FakeClock
from deadletter.testing.queue_bench import a_message, release
from engines.sqs_rig import SqsBench, made, opened, url_of

KEYS = Keys(b"the key of this office")
OTHERS = {
    "tenant": {"DataType": "String", "StringValue": "eu"},
    "amount": {"DataType": "Number.int", "StringValue": "42"},
    "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
}


def files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


class TestMessagesOfOthers(SqsBench):
    async def put(self, engine: SqsEngine, body: str, **more: Any) -> str:
        url = await made(engine, "orders")
        sent = await engine.service.call("send_message", QueueUrl=url, MessageBody=body, **more)
        return str(sent["MessageId"])

    async def test_foreign_messages_are_read_unchanged(self, engine: SqsEngine) -> None:
        id_ = await self.put(engine, "hellö", MessageAttributes=OTHERS)

        delivery = await self.received(engine)

        assert (delivery.message.id, delivery.message.body) == (id_, "hellö".encode())
        assert dict(delivery.message.headers)["seal"] == b"\x00\xff"
        assert dict(delivery.message.headers)["amount"] == b"42"
        assert (delivery.attempt, delivery.history) == (1, "")

    async def test_released_they_keep_their_id_and_their_attributes(
        self, engine: SqsEngine
    ) -> None:
        id_ = await self.put(engine, "hello", MessageAttributes=OTHERS)
        first = await self.received(engine)
        await release(engine.broker.source("orders"), first, history="told")

        raw = await self._raw(engine)
        queue = name_in(await made(engine, "orders"))
        again = read(raw, queue, PROCESS_KEYS)

        assert again.message == first.message
        assert again.message.id == id_
        assert (again.envelope.attempts, again.envelope.history) == (1, b"told")
        theirs = {k: v for k, v in raw["MessageAttributes"].items() if k != ATTRIBUTE}
        assert theirs == OTHERS

    async def test_a_replayed_one_has_its_attributes_again(self, engine: SqsEngine) -> None:
        await self.put(engine, "hello", MessageAttributes=OTHERS)
        message = (await self.received(engine)).message

        await self.sent(engine, message)

        attributes = (await self._raw(engine))["MessageAttributes"]
        assert attributes.pop(ATTRIBUTE)["DataType"] == "Binary"
        assert attributes == OTHERS

    async def test_a_strange_attribute_of_our_name_hurts_nobody(self, engine: SqsEngine) -> None:
        for junk in (b"\xc1", b"\x80", b"\x93\x01\x02\x03"):
            attribute = {ATTRIBUTE: {"DataType": "Binary", "BinaryValue": junk}}
            id_ = await self.put(engine, "hello", MessageAttributes=attribute)

            delivery = await self.received(engine)

            assert delivery.message.id == id_

    async def _raw(self, engine: SqsEngine) -> Any:
        answer = await engine.service.call(
            "receive_message",
            QueueUrl=await made(engine, "orders"),
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )
        return answer["Messages"][0]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
class TestLargeMessages(SqsBench):
    async def test_a_large_body_waits_elsewhere_and_goes_with_its_message(
        self, engine: SqsEngine, tmp_path: Path
    ) -> None:
        (message,) = await self.sent(engine, a_message(b"x" * 2_000_000))
        kept = len(files(tmp_path))

        delivery = await self.received(engine)
        source = engine.broker.source("orders")
        await release(source, delivery, history="told")
        again = await self.received(engine)
        await source.settle([Acked(again, Fate.BURIED)])

        assert delivery.message == again.message == message
        assert (kept, files(tmp_path)) == (1, [])

    async def test_the_same_message_sent_twice_has_two_bodies(self, engine: SqsEngine) -> None:
        large = a_message(b"x" * 2_000_000)
        await self.sent(engine, large)
        await self.sent(engine, large)
        source = engine.broker.source("orders")

        await source.settle([Acked(await self.received(engine))])

        assert (await self.received(engine)).message == large

    async def test_without_a_place_for_it_a_large_one_is_refused_and_none_is_sent(
        self, clock: FakeClock
    ) -> None:
        engine = await opened(url_of(self.server), clock)
        large = a_message(b"x" * 1_048_100)

        with pytest.raises(Refused, match=r"1048\d{3} bytes .*claim_check="):
            await self.sent(engine, a_message(), large)

        assert await self.nothing_left(engine)
        await engine.close()

    async def test_the_largest_that_is_taken_can_be_released_with_a_story(
        self, engine: SqsEngine
    ) -> None:
        largest = a_message(b"x" * (1_048_576 - 700))
        await self.sent(engine, largest)
        first = await self.received(engine)
        await release(engine.broker.source("orders"), first, history="s" * 5000)

        again = await self.received(engine)

        assert (again.message, again.attempt, again.suspect) == (largest, 2, False)

    async def test_one_of_others_at_the_very_limit_is_released_as_it_is(
        self, engine: SqsEngine
    ) -> None:
        url = await made(engine, "orders")
        await engine.service.call("send_message", QueueUrl=url, MessageBody="x" * 1_048_576)
        source = engine.broker.source("orders")
        await release(source, await self.received(engine), history="told")

        again = await self.received(engine)

        assert (again.attempt, again.history, again.suspect) == (2, "told", False)

    async def test_a_body_that_is_gone_is_said_so(self, engine: SqsEngine, tmp_path: Path) -> None:
        await self.sent(engine, a_message(b"x" * 2_000_000))
        for file in files(tmp_path):
            file.unlink()

        delivery = await self.received(engine)

        assert MISSING in dict(delivery.message.headers)

    async def test_large_bodies_may_wait_on_s3(self, clock: FakeClock) -> None:
        url = url_of(self.server, claim_check="s3://large-bodies/here")
        engine = await opened(url, clock)
        body_store = engine.broker._sender._body_store  # type: ignore[attr-defined]
        await body_store._client.create_bucket(
            Bucket="large-bodies", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        (message,) = await self.sent(engine, a_message(b"x" * 1_100_000))
        kept = await body_store._client.list_objects_v2(Bucket="large-bodies")

        delivery = await self.received(engine)
        await engine.broker.source("orders").settle([Acked(delivery)])

        left = await body_store._client.list_objects_v2(Bucket="large-bodies")
        assert delivery.message == message
        assert [o["Key"][:5] for o in kept["Contents"]] == ["here/"]
        assert "Contents" not in left
        with pytest.raises(NotFound):
            await body_store.get("nothing")
        await engine.close()

    async def test_reading_a_large_message_without_claim_check_names_the_option(
        self, engine: SqsEngine, url: str, clock: FakeClock
    ) -> None:
        await self.sent(engine, a_message(b"x" * 2_000_000))
        other = await opened(url.partition("&claim_check")[0], clock)

        with pytest.raises(ConfigError, match="claim_check="):
            await self.received(other)

        await other.close()
        assert (await self.received(engine)).attempt == 1


def test_a_claim_that_is_no_key_of_ours_is_not_followed() -> None:
    envelope = Envelope(id=b"m", sent_at=a_message().sent_at, claim="../../etc/passwd")
    entry = entry_of(a_message(), envelope, group=None, queue="orders", keys=KEYS)
    raw = {
        "MessageId": "theirs",
        "ReceiptHandle": "h",
        "Body": entry["MessageBody"],
        "MessageAttributes": entry["MessageAttributes"],
    }

    received = read(raw, "orders", KEYS)

    assert received.message.id == "theirs"
    assert received.envelope.claim == ""


def test_a_slip_with_times_that_do_not_compare_is_none_of_ours() -> None:
    naive = a_message().sent_at.replace(tzinfo=None)
    envelope = Envelope(id=b"m", sent_at=naive, due=naive)
    entry = entry_of(a_message(), envelope, group=None, queue="orders", keys=KEYS)
    raw = {"MessageId": "theirs", "ReceiptHandle": "h", "Body": "x"}

    assert read({**raw, **entry}, "orders", KEYS).message.id == "theirs"


def test_attempts_that_none_of_us_has_signed_are_ignored() -> None:
    message = a_message()
    envelope = structs.replace(envelope_of(message), attempts=99, history=b"lies")
    entry = entry_of(message, envelope, group=None, queue="orders", keys=KEYS)
    raw = {
        "MessageId": "theirs",
        "ReceiptHandle": "h",
        "Body": entry["MessageBody"],
        "MessageAttributes": entry["MessageAttributes"],
    }
    moved = {**raw, "Attributes": {"DeadLetterQueueSourceArn": "arn:aws:sqs:::orders"}}

    for lie in (
        read(raw, "orders", Keys(b"another key")),
        read(raw, "payments", KEYS),
        read({**raw, "Body": "another"}, "orders", KEYS),
    ):
        assert lie.unsigned
        assert (lie.envelope.attempts, lie.envelope.history) == (0, b"")
        assert lie.message.id == message.id
    assert read(raw, "orders", KEYS).envelope.attempts == 99
    # What SQS has moved by itself was signed for the queue it came from.
    assert read(moved, "orders-dlq", KEYS).envelope.attempts == 99


def test_headers_that_cannot_be_attributes_stay_headers() -> None:
    kinds = b'{"AWS.x":"String","empty":"String","odd":"String","ok":"String"}'
    headers = [("AWS.x", b"1"), ("empty", b""), ("odd", b"\x00"), ("ok", b"1")]
    message = a_message(headers=(*headers, (TYPES, kinds)))

    assert list(native_attributes(message)) == ["ok"]


def test_headers_that_only_look_like_types_are_let_be() -> None:
    for junk in (b"", b"{", b"[1]", b'{"a":1}'):
        assert native_attributes(a_message(headers=((TYPES, junk),))) == {}


def test_ten_attributes_of_others_leave_room_for_ours() -> None:
    ten = {f"a{i}": {"DataType": "String", "StringValue": "x"} for i in range(10)}
    message = a_message(headers=headers_of(ten))

    envelope = envelope_of(message)
    entry = entry_of(message, envelope, group=None, queue="orders", keys=KEYS)

    assert len(entry["MessageAttributes"]) == 10
    assert len(message.headers) == 11


def test_ids_that_sqs_would_not_take_become_digests() -> None:
    assert fit("order-1~2") == "order-1~2"
    assert len(fit("Bestellung über 42 €")) == 64
    assert len(fit("x" * 129)) == 64
    assert fit("\ud800") != fit("\ud801")
