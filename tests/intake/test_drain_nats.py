"""NATS: dead streams, and what consumers have given up on."""

from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from nats.js import api

from deadletter.brokers.nats.drain import ADVISORIES, STREAM, Nats
from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.core.failure import Reason
from deadletter.core.letter import State
from deadletter.stores.memory import MemoryEngine
from deadletter.testing.fakes import eventually
from deadletter.testing.queue_bench import a_message
from deadletter.wiring.foreign import opened_foreign
from intake.rig import drained, intake, letters, sent_back
from servers import Server

_numbers = count(1)


@pytest.fixture
async def server(nats_server: Server) -> AsyncIterator[Nats]:
    async with opened_foreign(nats_server.url) as foreign:
        assert isinstance(foreign, Nats)
        for info in await foreign.link.client.jetstream().streams_info():
            await foreign.link.client.jetstream().delete_stream(info.config.name or "")
        drain = foreign.drain(ADVISORIES)  # listens from now on
        await drain.depth()
        await drain.close()
        yield foreign


class Work:
    """A stream whose consumer gives up after two deliveries."""

    def __init__(self, server: Nats, retention: api.RetentionPolicy) -> None:
        number = next(_numbers)
        self.js = server.link.client.jetstream()
        self.stream, self.subject = f"WORK{number}", f"work{number}.new"
        self.retention = retention
        self.pull: Any = None

    async def make(self) -> "Work":
        await self.js.add_stream(
            name=self.stream, subjects=[self.subject], retention=self.retention
        )
        config = api.ConsumerConfig(durable_name="w", max_deliver=2, ack_wait=0.2)
        await self.js.add_consumer(self.stream, config)
        self.pull = await self.js.pull_subscribe_bind("w", self.stream)
        return self

    async def die(self) -> None:
        """Take it twice and never acknowledge it; the server says so, once."""
        before = await self.said()
        for _ in range(2):
            await self.pull.fetch(1, 5)

        async def told() -> bool:
            await self._ask()
            return await self.said() > before

        await eventually(told)

    async def _ask(self) -> None:
        # Only somebody who asks makes the server notice.
        try:
            await self.pull.fetch(1, 0.1)
        except TimeoutError:
            return

    async def said(self) -> int:
        return int((await self.js.stream_info(STREAM)).state.messages)

    async def left(self) -> int:
        return int((await self.js.stream_info(self.stream)).state.messages)


@pytest.fixture
async def work(server: Nats) -> Work:
    return await Work(server, api.RetentionPolicy.WORK_QUEUE).make()


async def test_messages_a_consumer_gave_up_on_become_letters_of_their_subject(
    server: Nats, work: Work, office: MemoryEngine
) -> None:
    await work.js.publish(work.subject, b"\x00body", headers={"tenant": "eu"})
    await work.die()

    [letter] = await drained(server.drain(ADVISORIES), office)

    head = letter.head
    assert (head.source, head.message_id) == (work.subject, f"{work.stream}/1")
    assert (head.reason, head.attempts) == (Reason.ATTEMPTS_EXHAUSTED, 2)
    assert head.consumer == "w"
    assert letter.message.body == b"\x00body"
    assert letter.message.header("tenant") == "eu"
    assert await work.left() == 0


async def test_replayed_messages_that_die_again_return_to_their_letter(
    server: Nats, nats_server: Server, work: Work, office: MemoryEngine
) -> None:
    await work.js.publish(work.subject, b"again", headers={"Nats-Msg-Id": "m"})
    await work.die()
    [first] = await drained(server.drain(ADVISORIES), office)

    await sent_back(server, nats_server.url, office)
    await work.die()
    [second] = await drained(server.drain(ADVISORIES), office)

    assert second.id == first.id
    assert second.head.state is State.PENDING
    assert len(await letters(office)) == 1


async def test_drained_messages_of_shared_streams_stay_in_their_stream(
    server: Nats, office: MemoryEngine
) -> None:
    work = await Work(server, api.RetentionPolicy.LIMITS).make()
    await work.js.publish(work.subject, b"body")
    await work.die()

    assert len(await drained(server.drain(ADVISORIES), office)) == 1
    assert await work.left() == 1


async def test_messages_removed_by_stream_limits_are_still_reported(
    server: Nats, work: Work, office: MemoryEngine
) -> None:
    await work.js.publish(work.subject, b"body")
    await work.die()
    await work.js.delete_msg(work.stream, 1)

    [letter] = await drained(server.drain(ADVISORIES), office)

    assert letter.head.reason is Reason.UNDECODABLE
    assert "removed it" in letter.head.reason_text


async def test_nothing_is_missed_while_no_drain_runs(
    server: Nats, work: Work, office: MemoryEngine
) -> None:
    for n in range(12):
        await work.js.publish(work.subject, b"%d" % n)
        await work.die()

    found = await drained(server.drain(ADVISORIES), office)

    assert sorted(int(letter.message.body) for letter in found) == list(range(12))
    assert await work.said() == 0


async def test_a_second_stream_of_advisories_is_a_config_error(
    server: Nats, office: MemoryEngine
) -> None:
    js = server.link.client.jetstream()
    await js.delete_stream(STREAM)
    await js.add_stream(name="OTHER", subjects=["$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>"])

    with pytest.raises(ConfigError, match="delete it, or drain it instead"):
        await server.drain(ADVISORIES).take(1)


async def test_a_dead_stream_is_drained_and_read(
    server: Nats, nats_server: Server, work: Work, office: MemoryEngine
) -> None:
    await work.js.add_stream(name="POISON", subjects=["poison"])
    headers = {"reason_poisoned": "no price", "topic_poisoned": work.subject}
    await work.js.publish("poison", b"body", headers=headers)

    looking = intake(server.drain("POISON"), office, work.subject)
    seen = await looking.look(5)
    await looking.end()
    [letter] = await drained(server.drain("POISON"), office, work.subject)
    await sent_back(server, nats_server.url, office)

    assert [one.id for one in seen] == [letter.id]
    assert (letter.head.source, letter.head.error_text) == (work.subject, "no price")
    assert await drained(server.drain("POISON"), office) == []
    [back] = await work.pull.fetch(1, 5)
    assert back.data == b"body"
    assert "reason_poisoned" not in back.headers
    assert await server.places() == ["POISON", ADVISORIES]


async def test_wrong_names_and_addresses_say_what_to_do(
    server: Nats, nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="no stream 'NOWHERE'"):
        await server.drain("NOWHERE").take(1)
    with pytest.raises(ConfigError, match="user and password"):
        async with opened_foreign(nats_server.url.replace("postmark", "wrong")):
            pass
    with pytest.raises(Unavailable, match="is NATS running"):
        async with opened_foreign("nats://127.0.0.1:1"):
            pass


async def test_a_client_that_the_library_has_closed_is_replaced(
    server: Nats, office: MemoryEngine
) -> None:
    number = next(_numbers)
    stream = f"ORDERS{number}-DLQ"
    await server.link.client.jetstream().add_stream(name=stream, subjects=[f"dead{number}"])
    sink, drain = server.sink(f"dead{number}"), server.drain(stream)
    await sink.send([a_message(id="m-1")])
    assert len(await drained(drain, office)) == 1

    client = server.link.client
    # What the server cannot read, as when it was changed on the way.
    client._transport.write(b"PUX dead 4\r\nbody\r\n")  # type: ignore[union-attr]
    await eventually(lambda: client.is_closed)
    await sink.send([a_message(id="m-2")])

    assert len(await drained(drain, office)) == 1
    assert len(await letters(office)) == 2
