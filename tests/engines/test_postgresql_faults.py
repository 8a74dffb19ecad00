"""PostgreSQL: workers killed, the server killed, connections cut. Nothing is lost."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deadletter.app import App
from deadletter.core.errors import GiveUp, Unavailable
from deadletter.core.message import Message
from deadletter.ports import Acked, Burial, Engine, Fate
from deadletter.stores.postgresql import database as waking
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.system import SystemClock
from deadletter.testing.fakes import eventually
from deadletter.testing.letters_bench import a_letter
from deadletter.testing.queue_bench import LEASE, a_message, info
from engines.patience import insist
from engines.postgresql_time import a_database
from servers import Server

WORKER = Path(__file__).with_name("postgresql_worker.py")


@pytest.fixture
async def url(postgresql_server: Server) -> AsyncIterator[str]:
    async with a_database(postgresql_server.url) as url:
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[PostgresqlEngine]:
    engine = await open_database(url, SystemClock())
    yield engine
    await engine.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[PostgresqlEngine]:
    engine = await open_database(url, SystemClock())
    yield engine
    await engine.close()


async def test_a_worker_killed_between_keeping_and_acking_leaves_one_letter(
    url: str, engine: PostgresqlEngine
) -> None:
    sending = [a_message() for _ in range(5)]
    await engine.broker.sink("orders").send(sending)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, str(WORKER), url, "orders", env={"PYTHONPATH": _path()}
    )
    assert await worker.wait() == -9

    await eventually(lambda: _swept(engine, 5), within=10.0)
    source = engine.broker.source("orders")
    while found := await source.receive(limit=1, wait=0, lease=LEASE, alone=True):
        await _bury(engine, found)

    assert engine.letters is not None
    assert await engine.letters.counts() == {"orders": {"pending": 5}}
    assert await engine.letters.verify() == []
    assert (await info(engine.broker)).tally == {"sent": 5, Fate.BURIED: 5}


@pytest.mark.slow
async def test_nothing_is_lost_when_the_server_is_killed_under_load(
    url: str, postgresql_server: Server
) -> None:
    handled: Counter[int] = Counter()
    app = App(url)

    @app.handler("orders")
    async def handle(order: dict[str, Any]) -> None:
        await asyncio.sleep(0.002)
        if order["id"] % 5 == 0:
            raise GiveUp("every fifth")
        handled[order["id"]] += 1

    async with app:
        stop = asyncio.Event()
        work = asyncio.create_task(app.work(stop))
        sending = asyncio.create_task(_send(app, range(600)))
        await eventually(lambda: len(handled) > 50)
        await asyncio.to_thread(postgresql_server.kill)
        await asyncio.sleep(5.0)
        await asyncio.to_thread(postgresql_server.start)
        await sending
        await eventually(lambda: _is_empty(app), within=60.0)
        stop.set()
        assert await work == 0

        letters = await app.letters()
        assert await letters.counts() == {"orders": {"pending": 120}}
        assert await letters.verify() == []
    assert set(handled) == {n for n in range(600) if n % 5}


async def test_messages_of_another_process_wake_a_waiting_receive(
    engine: PostgresqlEngine, other: PostgresqlEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "LOOK", 600.0)  # looking does not help
    monkeypatch.setattr(waking, "LOOK_OFTEN", 600.0)
    waiting = await _waiting(engine)
    await eventually(lambda: _listeners(other))

    await other.broker.sink("orders").send([a_message(b"hello")])

    (delivery,) = await asyncio.wait_for(waiting, 10.0)
    assert delivery.message.body == b"hello"


async def test_a_listener_that_was_cut_off_listens_again(
    engine: PostgresqlEngine, other: PostgresqlEngine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "LOOK", 600.0)
    monkeypatch.setattr(waking, "LOOK_OFTEN", 600.0)
    monkeypatch.setattr(waking, "_PAUSE", 0.05)
    waiting = await _waiting(engine)
    await eventually(lambda: _listeners(other))
    admin = await asyncpg.connect(url)
    ended = await admin.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    await admin.close()
    assert ended == 1

    await eventually(lambda: _listeners(other))
    await other.broker.sink("orders").send([a_message()])

    assert len(await asyncio.wait_for(waiting, 10.0)) == 1


async def test_without_a_listener_one_looks(url: str, other: PostgresqlEngine) -> None:
    deaf = await open_database(f"{url}?listen=off", SystemClock())
    waiting = await _waiting(deaf)

    await other.broker.sink("orders").send([a_message()])

    assert len(await asyncio.wait_for(waiting, 10.0)) == 1
    assert not await _listeners(other)
    await deaf.close()


async def test_everything_works_as_it_must_behind_pgbouncer(
    url: str, postgresql_server: Server
) -> None:
    engine = await open_database(f"{url}?pgbouncer=1&pool=2", SystemClock())
    await engine.broker.sink("orders").send([a_message() for _ in range(10)])
    source = engine.broker.source("orders")
    first, *rest = await source.receive(limit=10, wait=5.0, lease=LEASE)

    await _bury(engine, [first])
    settled = await source.settle([Acked(one) for one in rest])

    assert engine.letters is not None
    assert settled == [True] * 9
    assert len((await engine.letters.find()).heads) == 1
    assert await engine.letters.verify() == []
    # Nothing stays with a session that another one could stumble over.
    rows = await engine._db.fetch("SELECT name FROM pg_prepared_statements")
    settings = await engine._db.fetch("SELECT current_setting('jit')")
    plain = await asyncpg.connect(url)
    assert [row for row in rows if row[0]] == []
    assert settings == [("off",)]
    assert await plain.fetchval("SHOW jit") == "on"
    await plain.close()
    await engine.close()


async def test_a_connection_that_was_cut_is_replaced(engine: PostgresqlEngine, url: str) -> None:
    await engine.broker.sink("orders").send([a_message()])
    admin = await asyncpg.connect(url)
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'deadletter' AND datname = current_database()"
    )
    await admin.close()

    async def sent() -> bool:
        try:
            await engine.broker.sink("orders").send([a_message()])
        except Unavailable:
            return False
        return True

    await eventually(sent)


async def test_keeping_the_same_letters_at_once_is_keeping_them_once(
    engine: PostgresqlEngine, other: PostgresqlEngine
) -> None:
    letters = [a_letter(message_id=f"m-{n}", fingerprint=f"f-{n % 7}") for n in range(60)]
    rounds = [letters[n:] + letters[:n] for n in range(0, 60, 8)]

    kept = await asyncio.gather(
        *(
            store.keep(some[::way])
            for some in rounds
            for way in (1, -1)
            for store in (_office(engine), _office(other))
        )
    )

    assert Counter(one.is_new for some in kept for one in some)[True] == 60
    assert await _office(engine).counts() == {"orders": {"pending": 60}}
    assert await _office(engine).verify() == []


async def _waiting(engine: Engine) -> "asyncio.Task[Any]":
    receiving = engine.broker.source("orders").receive(limit=1, wait=60.0, lease=LEASE)
    task: asyncio.Task[Any] = asyncio.create_task(receiving)  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    return task


async def _listeners(engine: PostgresqlEngine) -> int:
    rows = await engine._db.fetch(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    return int(rows[0][0])


async def _bury(engine: PostgresqlEngine, deliveries: Any) -> None:
    assert engine.atomic_burial is not None
    kept = await engine.atomic_burial.bury(
        [Burial(one, a_letter(one.message.body, message_id=one.message.id)) for one in deliveries]
    )
    assert None not in kept
    source = engine.broker.source("orders")
    assert all(await source.settle([Acked(one, Fate.BURIED) for one in deliveries]))


async def _swept(engine: Engine, count: int) -> bool:
    await engine.broker.sweep()
    return (await info(engine.broker)).suspects == count


async def _send(app: App, numbers: range) -> None:
    """Send them all, however often it takes."""
    sink = (await app.engine()).broker.sink("orders")
    for n in numbers:
        message = Message(id=f"m-{n}", body=b'{"id": %d}' % n, sent_at=SystemClock().now())
        await insist(lambda m=message: sink.send([m]))


async def _is_empty(app: App) -> bool:
    try:
        counts = await info((await app.engine()).broker)
    except Unavailable:
        return False
    return not counts.ready + counts.delayed + counts.claimed + counts.suspects


def _office(engine: Engine) -> Any:
    return engine.letters


def _path() -> str:
    return ":".join(part for part in sys.path if part)
