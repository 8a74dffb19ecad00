"""Verify notices every damage done to a SQLite file behind our back."""

import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from pathlib import Path

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
from deadletter.core.seals import PLAIN
from deadletter.office.verify import verify
from deadletter.ports import Engine
from deadletter.stores.sqlite import audit as marks
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.wiring.engines import open_engine, opened
from downgrade import downgrade

_OWN = {
    "replays changed": ("UPDATE letters SET replays = 3 WHERE seq = {replayed}",),
    "replays of one never replayed": ("UPDATE letters SET replays = 1 WHERE seq = {first}",),
    "a planned item replaced": (
        "UPDATE campaign_items SET letter = {first} WHERE letter = {planned}",
    ),
    "a campaign deleted that had not begun": (
        "DELETE FROM campaign_outcomes WHERE campaign = 2",
        "DELETE FROM campaign_items WHERE campaign = 2",
        "DELETE FROM campaigns WHERE seq = 2",
    ),
    "a message's body turned into text": ("UPDATE messages SET body = CAST(body AS TEXT)",),
    "a message's body turned into a number": ("UPDATE messages SET body = 5",),
    "a message's id turned into a blob": ("UPDATE messages SET id = x'ff00ff'",),
    "a letter's body turned into text": (
        "UPDATE letter_contents SET body = 'text' WHERE letter = {first}",
    ),
    "a letter's history turned into a blob": (
        "UPDATE letter_contents SET history = x'ff00' WHERE letter = {first}",
    ),
    "a letter's attempts turned into text": (
        "UPDATE letters SET attempts = 'many' WHERE seq = {first}",
    ),
    "a letter's rest damaged": (
        "UPDATE letter_contents SET rest = x'ff00' WHERE letter = {first}",
    ),
    "a letter's death at no time": ("UPDATE letters SET dead_at = 'never' WHERE seq = {first}",),
    "a letter's seal turned into text": (
        "UPDATE letter_contents SET seal = 'seal' WHERE letter = {first}",
    ),
    "an audit entry at no time": ("UPDATE audit SET at = 'never' WHERE seq = 1",),
    "an unknown outcome": ("UPDATE campaign_items SET outcome = 'lost' WHERE letter = {replayed}",),
    "an unknown state": ("UPDATE letters SET state = 'lost' WHERE seq = {first}",),
    "message ids replaced": ("UPDATE messages SET id = 'x' || id",),
    "sent and handled both one more": (
        "UPDATE mailboxes SET sent = sent + 1 WHERE name = 'orders'",
        "UPDATE tally SET n = n + 1 WHERE fate = 'handled'",
    ),
}
_ALL = DAMAGES | _OWN
_PLAIN_KEY = "x'00000000'"
# All sums as anybody can make them who has no key.
_SUMS_ANEW = (
    f"UPDATE mailboxes SET marks_key = {_PLAIN_KEY}",
    "UPDATE tally SET marks = fate_marks(fate, n)",
    """UPDATE mailboxes SET sent_marks = (fate_marks('sent', sent) + (
        SELECT coalesce(message_marks(messages.id, body), 0) FROM messages
        WHERE mailbox = mailboxes.id)) & 4611686018427387903""",
    f"""UPDATE office SET marks_key = {_PLAIN_KEY},
        letter_marks = (SELECT text_marks(id, 1) FROM letters),
        deaths = (SELECT sum(total) FROM groups),
        death_marks = (SELECT text_marks(fingerprint, total) FROM groups)""",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "office.db"


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[Engine]:
    url = f"sqlite:///{path}"
    engine = await open_engine(url, clock=FakeClock(), dice=SeededDice(7))
    yield engine
    await engine.close()


def _damage(path: Path, statements: Iterable[str], letters: dict[str, str]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        marks.teach(connection, PLAIN)
        seqs = dict(connection.execute("SELECT id, seq FROM letters"))
        places = {name: seqs[id_] for name, id_ in letters.items()}
        for statement in statements:
            changed = connection.execute(statement.format(**places)).rowcount
            assert changed > 0, "nothing was damaged"


@pytest.mark.parametrize("damage", list(_ALL))
async def test_every_damage_is_noticed(engine: Engine, path: Path, damage: str) -> None:
    letters = await furnish(engine)
    assert not await findings(engine)

    _damage(path, _ALL[damage], letters)

    assert await findings(engine)


@pytest.mark.parametrize("damage", [*BY_SUMS, "message ids replaced"])
async def test_sums_with_a_key_show_damage_as_well(engine: Engine, path: Path, damage: str) -> None:
    use(engine, KEY)
    letters = await furnish(engine)
    assert not await findings(engine)

    _damage(path, _ALL[damage], letters)

    assert "without the key" not in await findings(engine)
    assert await findings(engine)


async def test_sums_cannot_be_made_anew_without_the_key(engine: Engine, path: Path) -> None:
    use(engine, KEY)
    letters = await furnish(engine)
    deleted = (*_ALL["a letter deleted with its counters"], *_SUMS_ANEW)
    replaced = _ALL["message ids replaced"]

    _damage(path, (*replaced, *deleted), letters)

    found = await findings(engine)
    assert "the sums of 1 mailbox were made (orders) without the key" in found
    assert "1 sum was made (letters) without the key" in found

    use(engine)  # nobody without the key could tell
    assert "sum" not in await findings(engine)


async def test_a_key_set_later_is_used_once_somebody_accepts_what_is_there(engine: Engine) -> None:
    await furnish(engine)
    use(engine, KEY)
    found = await findings(engine)
    assert "without the key" in found

    await sealed_anew(engine)
    assert not await findings(engine)

    # Everything goes on with the new key, and with the next one.
    await send_and_handle(engine)
    assert not await findings(engine)
    use(engine, OTHER_KEY, KEY)
    await send_and_handle(engine)
    assert not await findings(engine)
    await sealed_anew(engine)
    await send_and_handle(engine)
    use(engine, OTHER_KEY)
    assert not await findings(engine)


async def test_damaged_rows_stay_detectable_after_sealing(engine: Engine, path: Path) -> None:
    letters = await furnish(engine)
    damaged = ("message ids replaced", "a planned item replaced", BY_SUMS[0])
    _damage(path, [line for name in damaged for line in _ALL[name]], letters)
    before = (await verify(engine.broker, engine.letters)).findings
    assert len(before) >= 3

    use(engine, KEY)
    await sealed_anew(engine)

    assert set(before) <= set((await verify(engine.broker, engine.letters)).findings)


async def test_a_process_without_the_key_is_noticed(engine: Engine) -> None:
    use(engine, KEY)
    await furnish(engine)
    use(engine)
    await send_and_handle(engine)

    use(engine, KEY)

    assert "mailbox orders" in await findings(engine)


async def test_a_filled_file_from_before_keyed_sums_is_migrated(path: Path) -> None:
    url = f"sqlite:///{path}"
    async with opened(url) as engine:
        letters = await furnish(engine)
        assert engine.letters is not None
        await furnish_keys(engine.letters)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        downgrade(connection, 23)

    async with opened(url) as engine:
        assert not await findings(engine)
        await send_and_handle(engine)
        assert not await findings(engine)
        use(engine, KEY)
        assert "without the key" in await findings(engine)
        await sealed_anew(engine)
        await send_and_handle(engine)
        assert not await findings(engine)
        _damage(path, _ALL["a planned item replaced"], letters)
        assert "the letters of campaign c-1" in await findings(engine)
