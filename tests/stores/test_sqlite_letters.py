"""The SQLite office keeps what an office promises, and finds out who meddles."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from deadletter.core.errors import Refused
from deadletter.core.letter import State
from deadletter.core.query import parse
from deadletter.office.letters import Letters
from deadletter.ports import Durability, Features, Move
from deadletter.stores.sqlite.engine import Database
from deadletter.stores.sqlite.letters import SqliteLetters
from deadletter.stores.sqlite.replays import _SENT
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.letters_bench import ANNA, a_campaign, a_letter, tried_again
from deadletter.testing.letters_contract import LetterStoreContract

_PENDING = frozenset({State.PENDING})


async def _opened(path: Path, clock: FakeClock, stack: AsyncExitStack) -> SqliteLetters:
    # The disk is not what is tested here.
    db = Database(path, synchronous="normal", clock=clock)
    stack.push_async_callback(db.close)
    features = Features(engine="sqlite", durability=Durability.KILL_SAFE)
    return SqliteLetters(await db.open(), clock=clock, dice=SeededDice(), features=features)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "office.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteLetters]:
    async with AsyncExitStack() as stack:
        yield await _opened(path, FakeClock(), stack)


class TestSqliteLetters(LetterStoreContract):
    driver = SqliteLetters

    @pytest.fixture
    async def store(self, clock: FakeClock, path: Path) -> AsyncIterator[SqliteLetters]:
        async with AsyncExitStack() as stack:
            yield await _opened(path, clock, stack)


def _meddle(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            changed = connection.execute(statement).rowcount
            assert changed != 0, "nothing was meddled with"


_FORGED = """
INSERT INTO audit SELECT seq + 3, at, actor, action, target, reason, detail, hash
FROM audit WHERE seq = 1
"""


@pytest.mark.parametrize(
    ("statements", "complaint"),
    [
        (["UPDATE audit SET actor = 'bo' WHERE seq = 2"], "entry 2 is not as it was"),
        (["UPDATE audit SET hash = '' WHERE seq = 2"], "entry 2 is not as it was"),
        (["DELETE FROM audit WHERE seq = 2"], "entry 2 is missing"),
        (["DELETE FROM audit WHERE seq = 1"], "entry 1 is missing"),
        (["DELETE FROM audit WHERE seq > 2"], "ends with entry 2, but 3 were"),
        (["DELETE FROM audit"], "ends with entry 0, but 3 were"),
        (
            [  # two entries swapped
                "UPDATE audit SET seq = 9 WHERE seq = 1",
                "UPDATE audit SET seq = 1 WHERE seq = 2",
                "UPDATE audit SET seq = 2 WHERE seq = 9",
            ],
            "entry 1 is not as it was",
        ),
        ([_FORGED], "entry 4 is not as it was"),
    ],
)
async def test_tampering_with_the_audit_is_detected(
    store: SqliteLetters, path: Path, statements: list[str], complaint: str
) -> None:
    for n in range(3):
        await store.record("act", f"target {n}", ANNA)
    assert await store.verify() == []

    _meddle(path, *statements)

    assert complaint in "\n".join(await store.verify())


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM letters WHERE seq = 1", "are there instead of 3"),
        ("DELETE FROM letters WHERE seq = 1", "contents 1 belong to no letter"),
        ("DELETE FROM letter_contents WHERE letter = 1", "has no contents"),
        ("UPDATE letter_contents SET body = x'00'", "is not the one that was kept"),
        ("UPDATE letters SET state = 'closed' WHERE seq = 1", "source orders (closed)"),
        ("UPDATE group_states SET n = 7", "group f-1 (pending) should have 7"),
        ("UPDATE source_states SET n = 7", "source orders (pending) should have 7"),
        ("UPDATE groups SET open = 7", "group f-1 (open) should have 7"),
        ("UPDATE office SET purged = 1", "are there instead of 2"),
        ("DELETE FROM campaign_items", "campaign c-1 says 2 of its letters"),
        ("UPDATE campaigns SET items = 7", "campaign c-1 says it has 7 letters"),
        ("UPDATE campaigns SET taken = 1", "has taken 1 letters, but number 1 is"),
        ("UPDATE campaign_items SET outcome = 'sent'", "2 of its letters are planned"),
    ],
)
async def test_verify_names_inconsistencies(
    store: SqliteLetters, path: Path, statement: str, complaint: str
) -> None:
    kept = await store.keep([a_letter() for _ in range(3)])
    await store.plan_replay(a_campaign(), [one.id for one in kept[:2]])
    assert await store.verify() == []

    _meddle(path, statement)

    assert complaint in "\n".join(await store.verify())


@pytest.mark.parametrize("query", ["", "is:pending", "is:open source:orders", "{}"])
@pytest.mark.parametrize("limit", [None, 4, 7, 50])
async def test_letters_are_chosen_as_a_search_finds_them(
    store: SqliteLetters, query: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.office.letter_search.MANY", 3)
    await store.keep([a_letter() for _ in range(7)])
    heads = (await store.find(parse(query))).heads

    chosen = await Letters(store, FakeClock()).freeze(query, limit=limit)

    assert chosen == [head.id for head in heads][:limit]
    assert len(chosen) == min(7, limit or 7)


async def test_sent_copies_are_found_without_scanning_their_campaign(
    store: SqliteLetters, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {_SENT}", (0, 1, "[]"))
        steps = [step for *_, step in plan]

    assert any("campaign_items_sending" in step for step in steps)


async def test_a_damaged_body_is_never_handed_out(store: SqliteLetters, path: Path) -> None:
    damaged, sound = [one.id for one in await store.keep([a_letter(), a_letter()])]
    await store.plan_replay(a_campaign(), [damaged, sound])
    _meddle(path, "UPDATE letter_contents SET body = x'00' WHERE letter = 1")

    with pytest.raises(Refused, match=damaged):
        await store.get([damaged])
    with pytest.raises(Refused, match=damaged):
        await store.take_replay("c-1", limit=2)
    await store.purge([damaged], ANNA)

    (taken,) = await store.take_replay("c-1", limit=2)
    assert taken.letter_id == sound


@pytest.mark.parametrize("times", [1, 10_000])
async def test_purged_contents_leave_the_file(store: SqliteLetters, path: Path, times: int) -> None:
    (kept,) = await store.keep([a_letter(b"the secret of the day" * times)])

    await store.purge([kept.id], ANNA)

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    file = await asyncio.to_thread(path.read_bytes)
    assert b"the secret of the day" not in file


async def test_several_who_have_the_file_open_keep_one_letter_each(path: Path) -> None:
    letters = [a_letter() for _ in range(50)]
    async with AsyncExitStack() as stack:
        stores = [await _opened(path, FakeClock(), stack) for _ in range(4)]

        await asyncio.gather(
            *(store.keep(letters[n::3] + letters[:9]) for n, store in enumerate(stores))
        )

        assert await stores[0].counts() == {"orders": {State.PENDING: 50}}
        assert await stores[1].verify() == []


async def test_of_several_who_have_the_file_open_one_moves_a_letter(path: Path) -> None:
    async with AsyncExitStack() as stack:
        stores = [await _opened(path, FakeClock(), stack) for _ in range(4)]
        kept = await stores[0].keep([a_letter() for _ in range(20)])
        ids = tuple(one.id for one in kept)

        moved = await asyncio.gather(
            *(store.move(Move(ids=ids, old=_PENDING, new=State.CLOSED), ANNA) for store in stores)
        )

        assert sorted(map(len, moved)) == [0, 0, 0, 20]


async def test_batches_larger_than_a_statement_are_kept_whole(store: SqliteLetters) -> None:
    store.group_limit.per_day = 1500
    letters = [a_letter(fingerprint=f"f-{n % 1500}") for n in range(2500)]

    await store.keep(letters)
    await store.keep([tried_again(letter) for letter in letters])

    page = await store.find(parse("attempts:2"), limit=3000)
    assert len(page.heads) == 2500
    assert len(await store.groups(limit=2000)) == 1500
    assert await store.verify() == []


async def test_many_ids_are_moved_in_several_transactions(
    store: SqliteLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.stores.sqlite.letters.SqliteLetters.ids_at_once", 7)
    ids = [one.id for one in await store.keep([a_letter() for _ in range(30)])]

    moved = await store.move(Move(ids=tuple(ids), old=_PENDING, new=State.REVIEWED), ANNA)
    noted = await store.note(ids, "seen", ANNA)
    await store.plan_replay(a_campaign(), ids)
    taken = await store.take_replay("c-1", limit=100)

    assert moved == noted == ids == [one.letter_id for one in taken]
    assert await store.verify() == []
