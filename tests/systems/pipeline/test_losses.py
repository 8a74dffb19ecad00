"""Nothing is lost, whatever stops working in between."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event

import httpx
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from pipeline.pipestream_pb2 import ProcessDataRequest, ProcessDataResponse
from servers import Server
from stage import Process, Stage
from systems.pipeline.rig import Rig, away, served, well, wrong

pytestmark = pytest.mark.xdist_group("kafka_server")
HASTY = {
    "delivery.timeout.ms": 1500,  # until a send that does not succeed is an error
    "session.timeout.ms": 2000,
    "heartbeat.interval.ms": 500,
}


@pytest.fixture(scope="module")
def small(kafka_server: Server) -> Iterator[Rig]:
    """A pipeline of one node, whose engine tests start and stop themselves."""
    node = {"dlqConfig": {"maxRetries": 3, "retryBackoff": "0.5s"}}
    with Stage() as stage:
        rig = Rig(stage, kafka_server.url, {"only": node}, **HASTY)
        with served(rig), closing(rig):
            yield rig


@contextmanager
def running(rig: Rig) -> Iterator[Process]:
    """An engine that must end with code 0, unless it was killed before."""
    engine = rig.engine()
    try:
        yield engine
        if engine.code is None:
            assert engine.stop() == 0, engine.said()
    finally:
        engine.kill()


def test_a_dead_letter_topic_that_refuses_a_copy_loses_nothing(rig: Rig, dlq: httpx.Client) -> None:
    refused = 'dlq_mishaps_total{kind="copy-failed"}'
    before = rig.metric(refused)
    at_most(rig.dlq_topic("once"), 100, rig)
    stream = rig.stream("once", wrong)
    rig.send("once", stream)
    rig.wait_for("the metric", lambda: rig.metric(refused) == before + 1)
    at_most(rig.dlq_topic("once"), 1_000_000, rig)

    (letter,) = rig.letters(dlq, "once", f"key:{stream.stream_id}")
    asked = {"filter": f"key:{stream.stream_id}"}
    path = f"/admin/dlq/{rig.ids['once']}/replay"
    dlq.post(path, json=asked).raise_for_status()
    rig.calls(stream, 2)

    after = rig.stream("once", wrong)
    rig.send("once", after)
    rig.death_of("once", after)

    assert letter["state"] == "pending"
    dead = [one.message.stream.stream_id for one in rig.dead("once")]
    assert stream.stream_id not in dead


def test_a_broker_that_goes_away_while_a_stream_is_given_up(
    small: Rig, kafka_server: Server
) -> None:
    if not kafka_server.ours:
        pytest.skip("a broker from the environment is not ours to kill")
    gone = Event()
    with running(small):

        def without_broker(request: ProcessDataRequest) -> ProcessDataResponse:
            kafka_server.kill()
            gone.set()
            return wrong(request)

        stream = small.stream("only", without_broker, wrong)
        offset = small.send("only", stream)
        assert gone.wait(20)
        topic = small.topic("only")
        out_of_reach = f'dlq_out_of_reach{{mailbox="{topic}",what="broker"}}'
        small.wait_for("the metric", lambda: small.metric(out_of_reach) == 1)

        kafka_server.start()
        dead = small.death_of("only", stream).message

        assert dead.original_offset == offset
        small.wait_for("the commit", lambda: small.committed("only") > offset)
        small.wait_for("the metric", lambda: small.metric(out_of_reach) == 0)


def test_an_engine_that_is_killed_between_tries_loses_neither_stream_nor_count(small: Rig) -> None:
    doomed = small.stream("only", away, away, away, well)
    saved = small.stream("only", away, well)
    with running(small) as engine:
        small.send("only", doomed)
        small.send("only", saved)
        both = f'dlq_attempts_total{{mailbox="{small.topic("only")}",outcome="retried"}}'
        small.wait_for("their first tries", lambda: small.metric(both) >= 2)
        engine.kill()

    with running(small):
        dead = small.death_of("only", doomed).message
        calls = small.calls(saved, 2)

    assert len(calls) == 2
    assert dead.retry_count == len(small.modules.of(doomed.stream_id)) == 3


def at_most(topic: str, size: int, rig: Rig) -> None:
    """Limit the size of the records of a topic, in bytes."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    told = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": rig.bootstrap})
    for future in admin.incremental_alter_configs([told]).values():
        future.result()
