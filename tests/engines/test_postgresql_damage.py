"""Verify notices every damage done to a PostgreSQL database behind our back."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import asyncpg
import pytest

from damages import (
    BY_SUMS,
    DAMAGES,
    KEY,
    OTHER_KEY,
    findings,
    furnish,
    furnish_keys,
    sealed_anew,
    send_and_handle,
    use,
)
from deadletter.ports import Engine
from deadletter.stores.postgresql.engine import open_database
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_bench import a_campaign
from engines.postgresql_time import told_database, told_time

__all__ = ["told_database"]

_IDLE = "(SELECT seq FROM campaigns WHERE id = 'c-idle')"
_OWN = {
    "replays changed": ("UPDATE letter_marks SET replays = 3 WHERE letter = {replayed}",),
    "replays of one never replayed": (
        "UPDATE letter_marks SET replays = 1 WHERE letter = {first}",
    ),
    "a planned item replaced": (
        """UPDATE campaign_plans
        SET letters = array_replace(letters, {planned}, {first})""",
    ),
    "a campaign deleted that had not begun": (
        f"DELETE FROM campaign_outcomes WHERE campaign = {_IDLE}",
        f"DELETE FROM campaign_plans WHERE campaign = {_IDLE}",
        "DELETE FROM campaigns WHERE id = 'c-idle'",
    ),
    "message ids replaced": ("UPDATE messages SET id = 'x'::bytea || id",),
    "sent and handled both one more": (
        "UPDATE tally SET n = n + 1 WHERE fate IN ('sent', 'handled')",
    ),
}
for _name in ("a letter deleted with its counters", "a letter deleted, and its death kept"):
    _OWN[_name] = ("DELETE FROM letter_marks WHERE letter = {first}", *DAMAGES[_name])
_ALL = DAMAGES | _OWN


@pytest.fixture
async def engine(told_database: str) -> AsyncIterator[Engine]:
    clock = FakeClock()
    async with told_time(told_database, clock):
        engine = await open_database(told_database, clock)
        yield engine
        await engine.close()


async def _damage(url: str, statements: Iterable[str], letters: dict[str, str]) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET search_path TO deadletter")
        seqs = dict(await connection.fetch("SELECT id, seq FROM letters"))
        places = {name: seqs[id_] for name, id_ in letters.items()}
        for statement in statements:
            done = await connection.execute(statement.format(**places))
            assert not done.endswith(" 0"), "nothing was damaged"
    finally:
        await connection.close()


@pytest.mark.parametrize("damage", list(_ALL))
async def test_every_damage_is_noticed(engine: Engine, told_database: str, damage: str) -> None:
    letters = await furnish(engine)
    assert not await findings(engine)

    await _damage(told_database, _ALL[damage], letters)

    assert await findings(engine)


@pytest.mark.parametrize("damage", [*BY_SUMS, "message ids replaced"])
async def test_sums_with_a_key_show_damage_as_well(
    engine: Engine, told_database: str, damage: str
) -> None:
    use(engine, KEY)
    letters = await furnish(engine)
    assert not await findings(engine)

    await _damage(told_database, _ALL[damage], letters)

    assert "without the key" not in await findings(engine)
    assert await findings(engine)


async def test_a_key_set_later_is_used_once_somebody_accepts_what_is_there(engine: Engine) -> None:
    await furnish(engine)
    use(engine, KEY)
    assert "without the key" in await findings(engine)

    await sealed_anew(engine)
    assert not await findings(engine)

    # Everything goes on with the new key, and with the next one; also copies, which
    # the database makes by itself.
    await send_and_handle(engine)
    assert engine.atomic_replay is not None
    await engine.atomic_replay.send_back(a_campaign().id, limit=5)
    assert not await findings(engine)
    use(engine, OTHER_KEY, KEY)
    await send_and_handle(engine)
    assert not await findings(engine)
    await sealed_anew(engine)
    await send_and_handle(engine)
    use(engine, OTHER_KEY)
    assert not await findings(engine)


async def test_copies_are_known_before_and_after_a_key_is_set(engine: Engine) -> None:
    letters = await furnish(engine)
    use(engine, KEY)
    assert engine.atomic_replay is not None
    assert engine.letters is not None
    await engine.atomic_replay.send_back(a_campaign().id, limit=5)
    found = await findings(engine)
    assert "mailbox orders" not in found

    await sealed_anew(engine)
    await engine.letters.plan_replay(a_campaign("c-2"), [letters["first"]])
    await engine.atomic_replay.send_back("c-2", limit=5)

    assert not await findings(engine)


async def test_a_process_without_the_key_is_noticed(engine: Engine) -> None:
    use(engine, KEY)
    await furnish(engine)
    use(engine)
    await send_and_handle(engine)

    use(engine, KEY)

    assert "mailbox orders" in await findings(engine)


_BEFORE_KEYS = (
    "ALTER TABLE campaigns DROP COLUMN through",
    "ALTER TABLE campaign_items DROP COLUMN why",
    "ALTER TABLE mailboxes DROP COLUMN marks_key",
    "ALTER TABLE office DROP COLUMN marks_key",
    "ALTER TABLE letter_contents DROP COLUMN mark_key",
    "ALTER TABLE campaign_outcomes DROP COLUMN marks, DROP COLUMN marks_key",
    "ALTER TABLE lease_queues DROP COLUMN limit_mode",
    "ALTER TABLE items ADD COLUMN max_attempts integer",
    "CREATE TABLE item_origins (source_id text)",
    "DROP TABLE deaths, campaign_slices, workers, searches",
    "DROP INDEX audit_by_actor, audit_by_action",
    "ALTER TABLE campaigns DROP COLUMN plan, DROP COLUMN approved_by",
    "DELETE FROM migrations WHERE number >= 27",
)


async def test_a_filled_database_from_before_keyed_sums_is_migrated(
    engine: Engine, told_database: str
) -> None:
    letters = await furnish(engine)
    assert engine.letters is not None
    await furnish_keys(engine.letters)
    await _damage(told_database, _BEFORE_KEYS, {})

    later = await open_database(told_database, FakeClock())
    try:
        assert not await findings(later)
        await send_and_handle(later)
        assert not await findings(later)
        use(later, KEY)
        assert "without the key" in await findings(later)
        await sealed_anew(later)
        await send_and_handle(later)
        assert not await findings(later)
        await _damage(told_database, _ALL["a planned item replaced"], letters)
        assert "the letters of campaign c-1" in await findings(later)
    finally:
        await later.close()


async def test_sends_during_a_key_change_use_the_new_key(
    engine: Engine, told_database: str
) -> None:
    await furnish(engine)
    other = await open_database(told_database, FakeClock())
    use(other, KEY)
    use(engine, KEY)
    try:
        sending = [asyncio.create_task(send_and_handle(other)) for _ in range(10)]
        await sealed_anew(engine)
        await asyncio.gather(*sending)
        await sealed_anew(engine)
        assert not await findings(engine)
    finally:
        await other.close()
