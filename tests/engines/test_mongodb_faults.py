"""MongoDB: servers that go away, processes that die, and many at once."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import AutoReconnect

from deadletter.core.errors import Refused, Unavailable
from deadletter.core.letter import DeadLetter, State
from deadletter.ports import Acked, Engine, Fate, LedgerKey, LedgerState, LetterStore, Move
from deadletter.stores import sqlite
from deadletter.stores.mongodb import database
from deadletter.stores.mongodb import database as silence
from deadletter.stores.mongodb.engine import MongodbEngine
from deadletter.stores.mongodb.letters_documents import INLINE, PART
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from deadletter.testing.letters_bench import ANNA, a_campaign, a_letter
from deadletter.testing.queue_bench import a_message, info
from engines.mongodb_rig import a_database, database_of, opened
from engines.proxy import fault_proxy
from servers import Server

WORKER = Path(__file__).with_name("mongodb_worker.py")
KEEPER = Path(__file__).with_name("mongodb_keeper.py")


@pytest.fixture
async def url(mongodb_server: Server) -> AsyncIterator[str]:
    async with a_database(mongodb_server.url) as url:
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[MongodbEngine]:
    engine = await opened(url)
    yield engine
    await engine.close()


@pytest.fixture
async def other(url: str) -> AsyncIterator[MongodbEngine]:
    engine = await opened(url)
    yield engine
    await engine.close()


async def _killed(server: Server, engine: MongodbEngine) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.sleep(5.0)
    await asyncio.to_thread(server.start)


async def _stepped_down(server: Server, engine: MongodbEngine) -> None:
    with suppress(AutoReconnect):  # the answer may be lost with the connection
        await database_of(engine)._client.admin.command("replSetStepDown", 2, force=True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_killed, _stepped_down])
async def test_nothing_is_lost_or_doubled_when_the_server_goes_away_under_load(
    engine: MongodbEngine,
    other: MongodbEngine,
    mongodb_server: Server,
    fault: Callable[[Server, MongodbEngine], Awaitable[None]],
) -> None:
    letters = [a_letter(message_id=f"m-{n}", fingerprint=f"f-{n % 3}") for n in range(1500)]
    batches = [letters[n : n + 5] for n in range(0, 1500, 5)]
    done: list[int] = []
    troubles: list[str] = []
    keepers = [
        asyncio.create_task(_keep_all(_office(one), batches[part::4], done, troubles))
        for part, one in enumerate([engine, other] * 2)
    ]

    await eventually(lambda: len(done) > 20)
    await fault(mongodb_server, engine)
    await asyncio.gather(*keepers)

    office = _office(engine)
    assert await office.counts() == {"orders": {State.PENDING: 1500}}
    assert sum(group.total for group in await office.groups()) == 1500
    assert await office.verify() == []


async def test_a_worker_killed_between_keeping_and_acking_leaves_one_letter(
    url: str, engine: MongodbEngine, tmp_path: Path
) -> None:
    file = f"sqlite:///{tmp_path}/queue.db"
    queue = await sqlite.open_engine(file, clock=SystemClock(), dice=SystemDice())
    await queue.broker.sink("orders").send([a_message() for _ in range(5)])
    worker = await _process(WORKER, file, url)
    assert await worker.wait() == -9
    assert await _office(engine).counts() == {"orders": {State.PENDING: 5}}

    await eventually(lambda: _swept(queue, 5), within=10.0)
    source = queue.broker.source("orders")
    while found := await source.receive(limit=1, wait=0, lease=30.0, alone=True):
        letters = [a_letter(d.message.body, message_id=d.message.id) for d in found]
        await _office(engine).keep(letters)
        assert all(await source.settle([Acked(d, Fate.BURIED) for d in found]))

    assert await _office(engine).counts() == {"orders": {State.PENDING: 5}}
    assert await _office(engine).verify() == []
    assert (await info(queue.broker)).tally == {"sent": 5, Fate.BURIED: 5}
    await queue.close()


async def test_a_writer_that_died_in_its_turn_blocks_others_only_briefly(
    url: str, engine: MongodbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT", 0.5)
    monkeypatch.setattr(database, "SILENT", 0.5)
    dying = await _process(KEEPER, url)
    assert await dying.wait() == -9

    (kept,) = await asyncio.wait_for(_office(engine).keep([a_letter(message_id="m-1")]), 15.0)

    assert kept.is_new
    assert await _office(engine).verify() == []


async def test_keeping_the_same_letters_at_once_is_keeping_them_once(
    engine: MongodbEngine, other: MongodbEngine
) -> None:
    letters = [a_letter(message_id=f"m-{n}", fingerprint=f"f-{n % 7}") for n in range(60)]
    rounds = [letters[n:] + letters[:n] for n in range(0, 60, 12)]

    kept = await asyncio.gather(
        *(
            _office(one).keep(some[::way])
            for some in rounds
            for way in (1, -1)
            for one in (engine, other)
        )
    )

    assert Counter(one.is_new for some in kept for one in some)[True] == 60
    assert await _office(engine).counts() == {"orders": {State.PENDING: 60}}
    assert await _office(engine).verify() == []


async def test_the_audit_is_one_chain_whoever_writes_it(
    engine: MongodbEngine, other: MongodbEngine
) -> None:
    acts = [
        _office(one).record("act", f"target {n}", ANNA)
        for n in range(20)
        for one in (engine, other)
    ]

    await asyncio.gather(*acts)

    entries = await _office(engine).audit(limit=100)
    assert [entry.seq for entry in entries] == list(range(1, 41))
    assert await _office(engine).verify() == []


async def test_cancelled_writes_are_still_completed(engine: MongodbEngine) -> None:
    letter = a_letter()
    keeping = asyncio.create_task(_office(engine).keep([letter]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping

    await eventually(lambda: _is_there(_office(engine), letter.id))
    assert await _office(engine).verify() == []


async def test_the_server_forgets_finished_keys_by_itself_and_no_others(
    engine: MongodbEngine,
) -> None:
    ledger = engine.ledger
    assert ledger is not None
    done, busy, kept = (LedgerKey("orders", key) for key in ("done", "busy", "kept"))
    claims = await ledger.begin([done, busy, kept], lease=0.1)
    await ledger.finish([(claims[0], LedgerState.PROCESSED)], ttl=0.1)
    await ledger.finish([(claims[2], LedgerState.PROCESSED)], ttl=3600.0)

    async def forgotten() -> bool:
        return (await ledger.look([done])) == [None]

    await eventually(forgotten, within=20.0)
    assert await ledger.look([busy, kept]) == [LedgerState.PROCESSING, LedgerState.PROCESSED]


async def test_leases_go_by_the_clock_of_the_server(engine: MongodbEngine) -> None:
    ledger = engine.ledger
    assert ledger is not None
    key = LedgerKey("orders", "k")
    (first,) = await ledger.begin([key], lease=0.3)
    (early,) = await ledger.begin([key], lease=0.3)

    async def taken() -> bool:
        (claim,) = await ledger.begin([key], lease=60.0)
        return claim.mine

    await eventually(taken)
    assert (first.mine, early.mine) == (True, False)
    assert await ledger.finish([(first, LedgerState.PROCESSED)], ttl=1.0) == [False]


async def test_letters_are_never_left_to_the_server_to_expire(engine: MongodbEngine) -> None:
    there = database_of(engine).there
    expiring = {
        name
        for name in there.__struct_fields__
        for index in (await getattr(there, name).index_information()).values()
        if "expireAfterSeconds" in index
    }

    assert expiring == {"ledger"}


@pytest.mark.parametrize("size", [INLINE - 1, INLINE, INLINE + 1, INLINE + 2 * PART])
async def test_a_body_larger_than_a_document_is_kept_whole(
    engine: MongodbEngine, size: int
) -> None:
    office, parts = _office(engine), database_of(engine).there.parts
    letter = a_letter(b"ab" * (size // 2) + b"c" * (size % 2))

    (kept,) = await office.keep([letter])
    await office.plan_replay(a_campaign(), [kept.id])
    (taken,) = await office.take_replay("c-1", limit=1)

    (found,) = await office.get([kept.id])
    assert found.message == taken.message == letter.message
    assert await parts.count_documents({}) == max(0, -(-(size - INLINE) // PART))
    assert await office.verify() == []
    await office.move(Move(ids=(kept.id,), old=frozenset(State), new=State.PENDING), ANNA)
    await office.purge([kept.id], ANNA)
    assert await parts.count_documents({}) == 0
    assert await office.verify() == []


@pytest.mark.parametrize(
    ("letter", "saying"),
    [
        (lambda: a_letter(b"x" * (INLINE + 8 * PART + 1)), "at most"),
        (lambda: a_letter(headers=(("big", b"x" * 17_000_000),)), "beside its body"),
        (lambda: a_letter(attempts=1 << 64), "too large for a document"),
    ],
)
async def test_letters_that_no_document_can_hold_are_rejected_and_later_ones_are_kept(
    engine: MongodbEngine, letter: Callable[[], DeadLetter], saying: str
) -> None:
    with pytest.raises(Refused, match=saying):
        await _office(engine).keep([a_letter(), letter()])

    assert await _office(engine).counts() == {}
    await _office(engine).keep([a_letter()])
    assert await _office(engine).verify() == []


async def test_content_never_becomes_an_operator_or_the_name_of_a_field(
    engine: MongodbEngine,
) -> None:
    names = ["$set", "a.b.c", "$where: sleep(1)", "_id", "states.pending"]
    letters = [
        a_letter(
            b'{"$gt": ""}',
            message_id=name,
            source=name,
            fingerprint=name,
            key=name,
            headers=((name, name.encode()),),
        )
        for name in names
    ]

    kept = await _office(engine).keep(letters)

    assert await _office(engine).get([one.id for one in kept]) == letters
    assert await _office(engine).counts() == {name: {"pending": 1} for name in names}
    assert {group.fingerprint for group in await _office(engine).groups()} == {*names}
    assert await _office(engine).verify() == []


async def test_damage_is_found(engine: MongodbEngine) -> None:
    office, there = _office(engine), database_of(engine).there
    one, two = await office.keep([a_letter(b"one"), a_letter(b"two")])
    await office.note([one.id, two.id], "mine", ANNA)
    assert await office.verify() == []

    await there.letters.update_one({"_id": one.id}, {"$set": {"body": b"eno"}})
    await there.letters.update_one({"_id": two.id}, {"$set": {"state": "closed"}})
    await there.audit.update_one({"_id": 1}, {"$set": {"detail": "yours"}})
    await there.parts.insert_one({"letter": 99, "n": 0, "data": b""})

    found = "\n".join(await office.verify())
    assert f"the body of letter {one.id} is not the one that was kept" in found
    assert "source orders (pending) should have 2 letters, but there are 1" in found
    assert "group f-1 (open) should have 2 letters, but there are 1" in found
    assert "audit entry 1 is not as it was written" in found
    assert "contents 99 belong to no letter" in found
    with pytest.raises(Refused, match="run verify"):
        await office.get([one.id])


async def _keep_all(
    office: LetterStore,
    batches: Sequence[Sequence[DeadLetter]],
    done: list[int],
    troubles: list[str],
) -> None:
    """Keep them all, however often it takes."""
    for batch in batches:
        while True:
            try:
                await office.keep(batch)
                break
            except Unavailable as error:
                troubles.append(str(error))
                await asyncio.sleep(0.05)
        done.append(len(batch))


async def _process(script: Path, *args: str) -> asyncio.subprocess.Process:
    path = {"PYTHONPATH": ":".join(part for part in sys.path if part)}
    return await asyncio.create_subprocess_exec(sys.executable, str(script), *args, env=path)


async def _swept(engine: Engine, count: int) -> bool:
    await engine.broker.sweep()
    return (await info(engine.broker)).suspects == count


async def _is_there(office: LetterStore, id_: str) -> bool:
    return bool(await office.get([id_]))


def _office(engine: MongodbEngine) -> Any:
    return engine.letters


@pytest.mark.slow
async def test_a_server_that_breaks_off_in_its_answer_is_told_of_in_time(
    url: str, mongodb_server: Server
) -> None:
    async with fault_proxy(mongodb_server.port) as proxy:
        engine = await opened(f"{proxy.through(url)}&directConnection=true")
        letters = engine.letters
        assert letters is not None
        await letters.keep([a_letter(message_id="m-0")])
        loop = asyncio.get_running_loop()

        proxy.half = 40
        began = loop.time()
        with pytest.raises(Unavailable):
            await letters.keep([a_letter(message_id="m-1")])
        seconds = loop.time() - began
        proxy.half = None

        async def kept() -> bool:
            try:
                await letters.keep([a_letter(message_id="m-1")])
            except Unavailable:
                return False
            return True

        await eventually(kept, within=40.0)
        assert seconds < 25.0  # workers say so after 10 s, whatever the engine does
        assert await letters.counts() == {"orders": {"pending": 2}}
        await engine.close()
