"""What a NATS URL opens, and what is refused with a sentence that helps."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats as client
import pytest
from nats.js import JetStreamContext

from deadletter.brokers import nats
from deadletter.brokers.nats.address import read_url
from deadletter.brokers.nats.engine import connect
from deadletter.brokers.nats.streams import Names
from deadletter.core.errors import ConfigError, Refused, Unavailable
from deadletter.ports import Acked, Durability, QueueOptions
from deadletter.system import SystemClock
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import LEASE, a_message, info
from engines.nats_rig import fresh, opened
from servers import Nats, Server
from servers.common import HOST, PASSWORD, free_port


@pytest.mark.parametrize(
    ("url", "help_"),
    [
        ("http://localhost", "begin with nats://"),
        ("nats://localhost/orders", "have no path"),
        ("nats://localhost?colour=red", "unknown parameter 'colour' in the NATS URL"),
        ("nats://localhost?prefix=a.b", "letters, digits"),
        ("nats://localhost?stream=*", "letters, digits"),
        ("nats://localhost?consumer=mine", "name it too"),
        ("nats://localhost?replicas=many", "a number from 1 to 5"),
        ("nats://[localhost", "cannot be read"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused(url: str, help_: str) -> None:
    with pytest.raises(ConfigError, match=help_):
        await connect(url, clock=FakeClock())


def test_a_url_may_name_servers_users_and_tokens() -> None:
    several = read_url("tls://a%40b:p%3Aw@one:4222,two:4223?replicas=3&prefix=shop")
    by_token = read_url("nats://s3cret@one")

    assert several.login.servers == ["tls://one:4222", "tls://two:4223"]
    assert (several.login.user, several.login.password) == ("a@b", "p:w")
    assert (several.replicas, several.prefix) == (3, "shop")
    assert (by_token.login.token, by_token.login.user) == ("s3cret", None)


async def test_a_wrong_password_is_told(nats_server: Server) -> None:
    url = nats_server.url.replace(PASSWORD, "nonsense")

    with pytest.raises(ConfigError, match="right user and password") as error:
        await connect(url, clock=SystemClock())

    assert "nonsense" not in str(error.value)


async def test_a_server_that_is_not_there_is_told() -> None:
    with pytest.raises(Unavailable, match="is NATS running"):
        await connect(f"nats://{HOST}:{free_port()}", clock=SystemClock())


class Bare(Nats):
    """A server with a configuration of its own."""

    lines = ""

    def prepare(self) -> None:
        text = f'listen: "{HOST}:{self.port}"\n{self.lines}\n'
        Path(self.directory, "nats.conf").write_text(text)

    def make_url(self) -> str:
        return f"nats://{HOST}:{self.port}"

    def is_ready(self) -> bool:
        return self.ask().startswith(b"INFO")


class Tight(Bare):
    """A server whose user may not do what we need."""

    lines = (
        'jetstream { store_dir: "." }\nauthorization { users: ['
        '{user: "u", password: "p", permissions: {publish: "hello.>"}}]}'
    )

    def make_url(self) -> str:
        return f"nats://u:p@{HOST}:{self.port}"

    def prepare(self) -> None:
        super().prepare()
        path = Path(self.directory, "nats.conf")
        path.write_text(path.read_text().replace('"."', f'"{self.directory}"'))


async def test_a_server_without_jetstream_is_told(nats_server: Server) -> None:
    server = Bare()
    try:
        server.start()

        with pytest.raises(ConfigError, match="start the server with -js"):
            await connect(server.url, clock=SystemClock())
    finally:
        server.close()


async def test_a_missing_permission_is_told(
    nats_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.brokers.nats.connection.TIMEOUT", 0.5)
    server = Tight()
    try:
        server.start()

        with pytest.raises(Refused, match=r"allow it to publish to \$JS.API.>"):
            await connect(server.url, clock=SystemClock())
    finally:
        server.close()


async def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("deadletter.brokers.nats.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)

    with pytest.raises(ConfigError, match=r"pip install 'deadletter\[nats\]'"):
        await nats.open_engine("nats://x", clock=FakeClock(), dice=SeededDice())


async def test_the_engine_keeps_no_letters_and_states_its_durability(nats_server: Server) -> None:
    engine = await nats.open_engine(fresh(nats_server.url), clock=SystemClock(), dice=SeededDice())

    assert (engine.letters, engine.ledger, engine.atomic_burial) == (None, None, None)
    assert engine.features.durability is Durability.KILL_SAFE
    assert not engine.features.fences
    await engine.close()


def test_no_two_mailboxes_share_a_place() -> None:
    names = Names("dlq")
    mailboxes = ["a.b", "a=2Eb", "a*", "a>", ".a", "a.", "a/b", "ä", "A", "a", "x" * 512]
    mailboxes += ["x" * 511 + "y", "a..b", "a\\b", "$JS.API.>"]

    places = [names.place(mailbox) for mailbox in mailboxes]

    assert len({place.subject for place in places}) == len(mailboxes)
    assert len({place.stream for place in places}) == len(mailboxes)
    assert all(len(place.stream) < 250 for place in places)
    assert not any(set(place.subject) & set("*> $/\\") for place in places)
    assert names.place("orders.eu").subject == "dlq.orders.eu"


async def test_odd_names_are_mailboxes_like_any_other(nats_server: Server) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        for name in ("a.b", "*", "a>", "ä/ö\\", "x" * 512):
            message = a_message()
            await engine.broker.sink(name).send([message])
            source = engine.broker.source(name)

            (delivery,) = await source.receive(limit=9, wait=1, lease=LEASE)

            assert delivery.message == message
            assert await source.settle([Acked(delivery)]) == [True]


@asynccontextmanager
async def foreign(server: Server) -> AsyncIterator[JetStreamContext]:
    """Somebody else on the same server."""
    connection = await client.connect(server.url)
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


async def test_an_existing_stream_is_used_as_it_is(nats_server: Server) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="SHOP", subjects=["shop.>"])
        await theirs.publish("shop.orders", b"one", headers={"Tenant": "eu"})
        async with opened(fresh(nats_server.url, stream="SHOP")) as engine:
            source = engine.broker.source("shop.orders")

            (delivery,) = await source.receive(limit=9, wait=1, lease=LEASE)
            await engine.broker.sink("shop.returns").send([a_message()])

            assert delivery.message.body == b"one"
            assert delivery.message.headers == (("Tenant", b"eu"),)
            assert delivery.message.id == "SHOP/1"
            assert await source.settle([Acked(delivery)]) == [True]
            assert (await info(engine.broker, "shop.orders")).claimed == 0
            assert await engine.broker.delete("shop.returns") == 1
        assert (await theirs.stream_info("SHOP")).state.messages == 1


async def test_a_stream_that_does_not_take_the_mailbox_is_told(nats_server: Server) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="CARS", subjects=["cars.>"])
        async with opened(fresh(nats_server.url, stream="CARS")) as engine:
            with pytest.raises(ConfigError, match="does not take the subject boats"):
                await engine.broker.create(QueueOptions(name="boats"))
            with pytest.raises(ConfigError, match="is to be a subject"):
                engine.broker.sink("cars.*")


async def test_a_subject_of_another_stream_is_told(nats_server: Server) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="TAKEN", subjects=["taken.>"])
        async with opened(f"{nats_server.url}?prefix=taken") as engine:
            with pytest.raises(ConfigError, match=r"use it with \?stream=NAME"):
                await engine.broker.sink("orders").send([a_message()])


@pytest.mark.parametrize(
    ("setting", "help_"),
    [
        ({"max_deliver": 3}, "after 3 deliveries .* --max-deliver=-1"),
        ({"ack_policy": "none"}, "not a pull consumer with explicit acks"),
        ({"backoff": [1.0, 2.0], "max_deliver": -1}, "cuts our leases short"),
    ],
)
async def test_a_consumer_that_would_work_against_us_is_told(
    nats_server: Server, setting: dict[str, object], help_: str
) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="OTHERS", subjects=["others"])
        await theirs.add_consumer("OTHERS", durable_name="mine", **setting)
        url = fresh(nats_server.url, stream="OTHERS", consumer="mine")
        async with opened(url) as engine:
            source = engine.broker.source("others")
            with pytest.raises(ConfigError, match=help_):
                await source.receive(limit=1, wait=0, lease=LEASE)
        await theirs.delete_stream("OTHERS")


@pytest.mark.parametrize(("limit", "fine"), [(-1, True), (100, False)])
async def test_a_consumer_that_gives_up_by_itself_is_a_conflict(
    nats_server: Server, limit: int, *, fine: bool
) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="OTHERS", subjects=["others"])
        await theirs.add_consumer(
            "OTHERS", durable_name="mine", ack_policy="explicit", max_deliver=limit
        )
        url = fresh(nats_server.url, stream="OTHERS", consumer="mine")
        async with opened(url) as engine:
            sentence = await engine.broker.conflict("others", attempts=3)
        await theirs.delete_stream("OTHERS")

    assert (sentence is None) is fine
    assert fine or "--max-deliver=-1" in str(sentence)


async def test_a_second_reader_of_a_work_queue_is_told(nats_server: Server) -> None:
    async with foreign(nats_server) as theirs:
        await theirs.add_stream(name="Q", subjects=["q"], retention="workqueue")
        await theirs.add_consumer("Q", durable_name="first", ack_policy="explicit")
        async with opened(fresh(nats_server.url, stream="Q")) as engine:
            source = engine.broker.source("q")
            with pytest.raises(ConfigError, match=r"\?consumer= in the URL"):
                await source.receive(limit=1, wait=0, lease=LEASE)


async def test_a_longer_lease_makes_the_server_wait_longer(nats_server: Server) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        source = engine.broker.source("orders")
        place = engine.broker.source("orders")._box.place
        async with foreign(nats_server) as theirs:
            waits = []
            for lease in (5.0, 50.0, 10.0):
                await source.receive(limit=1, wait=0, lease=lease)
                there = await theirs.consumer_info(place.stream, place.durable)
                waits.append(there.config.ack_wait)

    assert waits == [6.0, 51.0, 51.0]


async def test_a_message_too_large_is_told_and_nothing_is_sent(nats_server: Server) -> None:
    async with opened(fresh(nats_server.url)) as engine:
        sink = engine.broker.sink("orders")

        with pytest.raises(Refused, match="raise max_payload"):
            await sink.send([a_message(), a_message(b"x" * 1_048_576)])

        assert (await info(engine.broker)).ready == 0
