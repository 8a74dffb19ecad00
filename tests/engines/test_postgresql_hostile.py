"""PostgreSQL: whatever a message holds comes back as it was."""

from collections.abc import AsyncIterator

import pytest

from deadletter.core.message import Lineage
from deadletter.core.text import MARK, shown, stored
from deadletter.ports import Acked, LedgerKey, LedgerState, Released
from deadletter.stores.postgresql.engine import PostgresqlEngine, open_database
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_bench import ANNA, a_letter, tried_again
from deadletter.testing.queue_bench import LEASE, a_message
from engines.postgresql_time import told_database, told_time

__all__ = ["told_database"]

ODD = ["\0", "a\0b", "\ud800", f"{MARK}", f"{MARK}0000", "𝄞\udfff", "x" * 100_000]


@pytest.fixture
async def engine(told_database: str) -> AsyncIterator[PostgresqlEngine]:
    clock = FakeClock()
    async with told_time(told_database, clock):
        engine = await open_database(told_database, clock)
        yield engine
        await engine.close()


@pytest.mark.parametrize("text", ODD)
def test_odd_text_is_stored_and_shown_as_it_was(text: str) -> None:
    written = stored(text)

    assert "\0" not in written
    written.encode()  # it is Unicode now
    assert shown(written) == text


@pytest.mark.parametrize("text", ODD)
async def test_messages_hold_any_text(engine: PostgresqlEngine, text: str) -> None:
    message = a_message(
        id=text,
        headers=((text, b"\xff\0"),),
        key=text,
        reply_to=text,
        lineage=Lineage(letter_id=text, generation=3, campaign=text),
    )
    await engine.broker.sink("orders").send([message])
    source = engine.broker.source("orders")
    (first,) = await source.receive(limit=1, wait=0, lease=LEASE)
    await source.settle([Released(first, history=text)])

    (again,) = await source.receive(limit=1, wait=0, lease=LEASE)

    assert again.message == message
    assert again.history == text
    assert await source.settle([Acked(again)]) == [True]


@pytest.mark.parametrize("text", ODD)
async def test_letters_hold_any_text(engine: PostgresqlEngine, text: str) -> None:
    letter = a_letter(
        b"\0\xff",
        source="orders",
        message_id=text,
        key=text,
        idempotency_key=text,
        error_type=text,
        error_text=text,
        code=text,
        consumer=text,
        version=text,
        trace_id=text,
        headers=((text, b"\0"),),
    )
    assert engine.letters is not None
    (kept,) = await engine.letters.keep([letter])
    await engine.letters.keep([tried_again(letter)])
    await engine.letters.note([kept.id], text, ANNA)

    (whole,) = await engine.letters.get([kept.id])
    (group,) = await engine.letters.groups()

    assert whole.message == letter.message
    assert (whole.head.error_text, whole.head.key) == (text, text)
    assert (group.text, group.code) == (text, text)
    assert await engine.letters.verify() == []


async def test_ten_megabytes_go_in_and_out(engine: PostgresqlEngine) -> None:
    body = bytes(range(256)) * 40_000
    await engine.broker.sink("orders").send([a_message(body), a_message(body)])
    source = engine.broker.source("orders")
    deliveries = await source.receive(limit=2, wait=0, lease=LEASE)
    assert engine.letters is not None

    kept = await engine.letters.keep([a_letter(body), a_letter(body)])

    assert [one.message.body for one in deliveries] == [body, body]
    found = await engine.letters.get([one.id for one in kept])
    assert [one.message.body for one in found] == [body, body]


async def test_numbers_may_be_large(engine: PostgresqlEngine) -> None:
    letter = a_letter(attempts=2**40, size=2**50)
    key = LedgerKey("orders", "k", generation=2**70)
    assert (engine.letters, engine.ledger) != (None, None)

    (kept,) = await engine.letters.keep([letter])  # type: ignore[union-attr]
    (claim,) = await engine.ledger.begin([key], lease=1.0)  # type: ignore[union-attr]

    (found,) = await engine.letters.get([kept.id])  # type: ignore[union-attr]
    assert (found.head.attempts, found.head.size) == (2**40, 2**50)
    assert (claim.mine, claim.state) == (True, LedgerState.PROCESSING)
