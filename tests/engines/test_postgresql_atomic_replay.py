"""PostgreSQL: letters go back in one transaction, whoever else is at work."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.errors import ConfigError
from deadletter.core.letter import By, DeadLetter, Edit, State
from deadletter.core.message import Message
from deadletter.office.transactions.letters import edit, move
from deadletter.ports import Move, Posted
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.stores.postgresql.letter_operations import PostgresqlOperations
from deadletter.testing.fakes import START, FakeClock
from deadletter.testing.letters_bench import a_letter
from deadletter.testing.queue_bench import drained
from engines.postgresql_time import told_database, told_time

__all__ = ["told_database"]


@pytest.fixture
async def engines(told_database: str) -> AsyncIterator[list[PostgresqlEngine]]:
    """Two of them, as two processes have; each with a single connection."""
    clock = FakeClock()
    async with told_time(told_database, clock):
        url = f"{told_database}?pool=1"
        both = [await open_database(url, clock) for _ in range(2)]
        await both[0].broker.number("orders")  # the short way is to one that is there
        yield both
        for engine in both:
            await engine.close()


@pytest.fixture
def engine(engines: list[PostgresqlEngine]) -> PostgresqlEngine:
    return engines[0]


async def test_two_senders_of_one_campaign_send_each_letter_once(
    engines: list[PostgresqlEngine],
) -> None:
    letters = [a_letter() for _ in range(120)]
    await planned(engines[0], *letters)

    async def send_all(engine: PostgresqlEngine) -> int:
        sent = 0
        while some := (await send_back(engine, limit=7)).letters:
            sent += some
        return sent

    shares = await asyncio.gather(*(send_all(engine) for engine in engines))

    assert sum(shares) == len(letters)
    assert all(shares)
    found = await arrived(engines[0])
    assert sorted(m.id for m in found) == sorted(one.message.id for one in letters)
    assert {message.generation for message in found} == {1}
    assert await counts(engines[0]) == {Outcome.SENT: len(letters)}


async def test_each_letter_goes_with_its_own_generation(engine: PostgresqlEngine) -> None:
    letters = [a_letter(replays=replays) for replays in (0, 2, 1, 2, 9, 0)]
    await planned(engine, *letters)

    posted = await send_back(engine)

    assert posted.letters == 5
    found = await arrived(engine)
    assert [message.generation for message in found] == [1, 3, 2, 3, 1]
    kept = await office(engine).get([letter.id for letter in letters])
    assert [one.head.replays for one in kept] == [1, 3, 2, 3, 9, 1]
    assert kept[4].head.state is State.QUARANTINED
    items = await office(engine).replays([letter.id for letter in letters])
    assert [item.generation for item in items] == [1, 3, 2, 3, 0, 1]
    assert await counts(engine) == {Outcome.SENT: 5, Outcome.SKIPPED: 1}
    assert await office(engine).verify() == []


async def test_a_failed_replay_batch_changes_nothing(engine: PostgresqlEngine) -> None:
    letters = [a_letter(), a_letter(source="no mailbox\0")]
    await planned(engine, *letters)

    with pytest.raises(ConfigError):
        await send_back(engine)

    assert await arrived(engine) == []
    kept = await office(engine).get([letter.id for letter in letters])
    assert [one.head.state for one in kept] == [State.PENDING] * 2
    assert await counts(engine) == {Outcome.PLANNED: 2}


async def test_a_mailbox_that_was_deleted_is_made_again(engine: PostgresqlEngine) -> None:
    assert await arrived(engine) == []  # it is known here
    await engine.broker.delete("orders")
    await planned(engine, a_letter())

    await send_back(engine)

    (queue,) = await engine.broker.queues()
    assert (queue.options.name, queue.ready, queue.tally) == ("orders", 1, {"sent": 1})


async def test_odd_text_and_large_bodies_go_back_as_they_were(engine: PostgresqlEngine) -> None:
    odd = "𝄞\ud800\0"
    large = bytes(range(256)) * 10_000
    letter = a_letter(large, message_id=odd, headers=((odd, b"\0\xff"),), key=odd)
    await planned(engine, letter)

    assert await send_back(engine) == Posted(1, len(large))

    (copy,) = await arrived(engine)
    for name in ("id", "body", "headers", "key"):
        assert getattr(copy, name) == getattr(letter.message, name)
    assert copy.lineage is not None
    assert copy.lineage.letter_id == letter.id


async def test_other_processes_are_told(engine: PostgresqlEngine, told_database: str) -> None:
    await planned(engine, a_letter())
    told: asyncio.Queue[Any] = asyncio.Queue()
    listener = await asyncpg.connect(told_database)
    await listener.add_listener("deadletter", lambda *heard: told.put_nowait(heard[-1]))

    await send_back(engine)

    async with asyncio.timeout(5):
        assert (await told.get()).isdigit()
    await listener.close()


async def planned(engine: PostgresqlEngine, *letters: DeadLetter, cap: int = 5) -> None:
    await office(engine).keep(letters)
    campaign = Campaign(id="c-1", query="is:pending", created_at=START, actor="anna", cap=cap)
    await office(engine).plan_replay(campaign, [letter.id for letter in letters])


async def send_back(engine: PostgresqlEngine, *, limit: int = 500) -> Posted:
    assert engine.atomic_replay is not None
    return await engine.atomic_replay.send_back("c-1", limit=limit)


async def arrived(engine: PostgresqlEngine) -> list[Message]:
    source = engine.broker.source("orders")
    return [delivery.message for delivery in await drained(source)]


async def counts(engine: PostgresqlEngine) -> dict[Outcome, int]:
    (campaign,) = await office(engine).campaigns()
    return {outcome: n for outcome, n in campaign.counts.items() if n}


def office(engine: PostgresqlEngine) -> Any:
    return engine.letters


@contextlib.asynccontextmanager
async def meanwhile(engine: PostgresqlEngine, url: str) -> AsyncIterator[asyncpg.Connection]:
    """Changes letters that are sent at this moment, and is done before they go."""
    other = await asyncpg.connect(url)
    async with other.transaction():
        yield other
        sending = asyncio.create_task(send_back(engine))
        await asyncio.sleep(0.2)  # it has read, and waits for us
        assert not sending.done()
    await sending
    await other.close()


async def test_letters_edited_meanwhile_are_sent_as_edited(
    engine: PostgresqlEngine, told_database: str
) -> None:
    letters = [a_letter(b"old"), a_letter()]
    await planned(engine, *letters)
    better = structs.replace(letters[0].message, body=b"new", key="new")
    (kept,) = await office(engine).get([letters[0].id])
    wish = Edit(letters[0].id, better, kept.head.revision, By("ann", "mended"))

    async with meanwhile(engine, told_database) as other:
        await edit(PostgresqlOperations(other), wish, START)

    found = {message.id: message for message in await arrived(engine)}
    copy = found[letters[0].message.id]
    assert (copy.body, copy.key, copy.generation) == (b"new", "new", 1)
    assert len(found) == 2
    assert await office(engine).verify() == []


async def test_letters_closed_meanwhile_are_not_sent(
    engine: PostgresqlEngine, told_database: str
) -> None:
    letters = [a_letter(), a_letter()]
    await planned(engine, *letters)
    close = Move(ids=(letters[0].id,), old=frozenset(State), new=State.CLOSED)

    async with meanwhile(engine, told_database) as other:
        await move(PostgresqlOperations(other), close, By("ann", "done"), START)

    (found,) = await arrived(engine)
    assert found.id == letters[1].message.id
    assert await counts(engine) == {Outcome.SENT: 1, Outcome.SKIPPED: 1}
    assert await office(engine).verify() == []


async def test_more_replays_than_are_prepared_for_go_as_well(engine: PostgresqlEngine) -> None:
    letters = [a_letter(replays=replays) for replays in (0, 40)]
    await planned(engine, *letters, cap=50)

    await send_back(engine)

    found = await arrived(engine)
    assert [message.generation for message in found] == [1, 41]


async def test_a_plan_of_many_letters_is_sent_in_its_order(engine: PostgresqlEngine) -> None:
    sent_at = [START + timedelta(seconds=n) for n in range(450)]
    letters = [a_letter(sent_at=at) for at in sent_at]  # more than share a row
    await planned(engine, *letters)
    await office(engine).purge([letters[3].id, letters[210].id], By("ann", "odd"))

    sent = [(await send_back(engine, limit=limit)).letters for limit in (5, 200, 500)]

    assert sent == [5, 200, 243]
    expected = [one.message.id for n, one in enumerate(letters) if n not in {3, 210}]
    assert [message.id for message in await arrived(engine)] == expected
    assert await counts(engine) == {Outcome.SENT: 448, Outcome.SKIPPED: 2}
    assert await office(engine).verify() == []


async def test_a_plan_that_lost_letters_is_found_out(
    engine: PostgresqlEngine, told_database: str
) -> None:
    await planned(engine, a_letter(), a_letter())
    other = await asyncpg.connect(told_database)
    await other.execute("UPDATE deadletter.campaign_plans SET letters = letters[2:]")
    await other.close()

    problems = await office(engine).verify()

    assert "campaign c-1 says 2 of its letters are planned, but 1 are" in problems


async def test_a_copy_is_what_was_edited_last(engine: PostgresqlEngine) -> None:
    letter = a_letter(b"old", key="old")
    await office(engine).keep([letter])
    (kept,) = await office(engine).get([letter.id])
    better = structs.replace(letter.message, body=b"new", key="new", headers=(("fixed", b"yes"),))
    by = By("ann", "mended")
    await office(engine).edit(letter.id, better, revision=kept.head.revision, by=by)
    await planned(engine, letter)

    await send_back(engine)

    (found,) = await arrived(engine)
    assert (found.body, found.key, found.headers) == (b"new", "new", better.headers)
