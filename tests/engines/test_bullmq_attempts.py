"""Attempts that are counted in the data of jobs, with `?attempt_field=`."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.brokers.bullmq.engine import BullEngine, connect
from deadletter.brokers.redis_common.attempt_field import count_attempt, restore_data
from deadletter.core.message import Message
from deadletter.ports import Acked, Fate, Released
from deadletter.wiring.foreign import opened_foreign
from engines.bullmq_pair import QUEUE, received, settled
from engines.bullmq_rig import fresh
from servers import Server

SENT = datetime(2026, 2, 26, tzinfo=UTC)
BODY = b'{ "attempt" : 1, "payload": {"weight": 1.10, "attempt": 7} }'


@pytest.fixture
async def engine(redis_server: Server) -> AsyncIterator[BullEngine]:
    engine = await connect(f"{fresh(redis_server.url)}&attempt_field=attempt")
    yield engine
    await engine.close()


async def queued(engine: BullEngine, id_: str = "1") -> dict[str, Any]:
    """Return the data of a job as it stands on the server."""
    client = engine.broker.source(QUEUE)._client  # type: ignore[attr-defined]
    stored = await client.runner.command("HGET", f"{client.keys[1]}{id_}", "data")
    return dict(msgspec.json.decode(stored))


async def send(engine: BullEngine, body: bytes = BODY) -> None:
    await engine.broker.sink(QUEUE).send([Message(id="m", body=body, sent_at=SENT)])


class TestOnTheServer:
    async def test_each_retry_counts_in_the_queue_and_bodies_stay_as_they_were_sent(
        self, engine: BullEngine
    ) -> None:
        await send(engine)
        counted = [(await queued(engine))["attempt"]]

        for _ in range(4):
            (delivery,) = await received(engine, 1)
            assert delivery.message.body == BODY
            await settled(engine, Released(delivery))
            counted.append((await queued(engine))["attempt"])

        assert counted == [1, 2, 3, 4, 5]
        assert (await queued(engine))["payload"] == {"weight": 1.10, "attempt": 7}

    async def test_a_release_that_is_not_charged_counts_nothing(self, engine: BullEngine) -> None:
        await send(engine)
        for charged in (True, False, False, True):
            (delivery,) = await received(engine, 1)
            await settled(engine, Released(delivery, charged=charged))

        assert (await queued(engine))["attempt"] == 3

    async def test_an_event_without_the_field_is_given_one(self, engine: BullEngine) -> None:
        await send(engine, b'{"payload": {}}')
        (delivery,) = await received(engine, 1)
        await settled(engine, Released(delivery))

        assert await queued(engine) == {"payload": {}, "attempt": 2}
        (again,) = await received(engine, 1)
        assert again.message.body == b'{"payload": {}}'

    async def test_jobs_that_were_given_up_are_drained_as_they_were_sent(
        self, engine: BullEngine, redis_server: Server
    ) -> None:
        await send(engine)
        (delivery,) = await received(engine, 1)
        await settled(engine, Released(delivery))
        (delivery,) = await received(engine, 1)
        await settled(engine, Acked(delivery, Fate.BURIED, history="{}"))

        prefix = engine.broker.source(QUEUE)._client.keys[1]  # type: ignore[attr-defined]
        place = redis_server.url.partition("?")[0]
        async with opened_foreign(place) as foreign:
            drain = foreign.drain(f"bullmq:{prefix.rstrip(':')}")
            (found,) = await drain.take(10)

        assert found.body == BODY

    async def test_without_the_setting_nothing_is_counted(self, redis_server: Server) -> None:
        engine = await connect(fresh(redis_server.url))
        await send(engine)
        (delivery,) = await received(engine, 1)
        await settled(engine, Released(delivery))

        assert (await queued(engine))["attempt"] == 1
        await engine.close()


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        (b'{"attempt":1}', b'{"attempt":3}'),
        (b'{"a":"attempt\\":9","attempt":1,"b":2}', b'{"a":"attempt\\":9","attempt":3,"b":2}'),
        (b'{"a":{"attempt":5}}', b'{"a":{"attempt":5},"attempt":3}'),
        (b"{}", b'{"attempt":3}'),
        (b'{"attempt":4}', b'{"attempt":6}'),
        (b'{"attempt":1,"attempt":2}', b'{"attempt":1,"attempt":4}'),
    ],
)
def test_only_the_field_of_the_object_itself_is_written(body: bytes, counted: bytes) -> None:
    found = count_attempt(body, "attempt", 2)

    assert found is not None
    assert found[0] == counted
    assert restore_data(*found) == body


@pytest.mark.parametrize(
    "body",
    [b"[1]", b"x", b"\xff", b"", b'{"attempt"', b'{"attempt":true}', b'{"attempt":"1"}', b"{} {}"],
)
def test_what_cannot_count_stays_as_it_is(body: bytes) -> None:
    assert count_attempt(body, "attempt", 1) is None


def test_what_others_have_changed_since_stays() -> None:
    found = count_attempt(b'{"attempt":1}', "attempt", 1)

    assert found is not None
    assert restore_data(b'{"attempt":9}', found[1]) == b'{"attempt":9}'
    assert restore_data(b'{"attempt": 2,"new":1}', found[1]) == b'{"attempt": 1,"new":1}'
    assert restore_data(b"{}", b"no note") == b"{}"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text() | st.just("attempt"), _JSON), st.integers(1, 9))
def test_every_object_comes_back_byte_for_byte(data: dict[str, Any], charged: int) -> None:
    body = msgspec.json.encode(data)
    found = count_attempt(body, "attempt", charged)

    if found is None:
        assert type(data["attempt"]) is not int
        return
    assert restore_data(*found) == body
    assert msgspec.json.decode(found[0]) == {**data, "attempt": data.get("attempt", 1) + charged}
