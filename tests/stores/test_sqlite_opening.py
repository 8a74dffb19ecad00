"""Opening the file: made safely, migrated, or refused in one sentence."""

import errno
import os
import sqlite3
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deadletter.core.errors import ConfigError, Refused
from deadletter.ports import Durability, Engine
from deadletter.stores.sqlite import open_engine, opening
from deadletter.stores.sqlite.engine import Database
from deadletter.testing.fakes import FakeClock, SeededDice
from deadletter.testing.queue_bench import LEASE, a_message


async def opened(url: str) -> Engine:
    return await open_engine(url, clock=FakeClock(), dice=SeededDice())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "q.db"


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def overwrite(path: Path, *, behind: int) -> None:
    """Damage a file."""
    with path.open("r+b") as file:
        file.seek(behind)
        file.write(b"\xaa" * (path.stat().st_size - behind))


async def test_a_url_names_a_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    engine = await opened("sqlite:///shop%20one.db")
    await engine.close()

    assert (tmp_path / "shop one.db").exists()


async def test_the_default_survives_a_power_cut(path: Path) -> None:
    engine = await opened(f"sqlite:///{path}")
    await engine.close()

    assert engine.features.durability is Durability.POWER_SAFE


async def test_less_is_declared_when_asked_for(path: Path) -> None:
    engine = await opened(f"sqlite:///{path}?synchronous=normal")
    await engine.close()

    assert engine.features.durability is Durability.KILL_SAFE


@pytest.mark.parametrize(("asked", "level"), [("full", 2), ("normal", 1)])
async def test_the_file_is_synchronised_as_declared(path: Path, asked: Any, level: int) -> None:
    db = await Database(path, synchronous=asked, clock=FakeClock()).open()

    found = await db.write(lambda c: c.execute("PRAGMA synchronous").fetchone())
    mode = await db.read(lambda c: c.execute("PRAGMA journal_mode").fetchone())
    await db.close()

    assert (found, mode) == ((level,), ("wal",))


@pytest.mark.parametrize(
    ("url", "saying"),
    [
        ("sqlite:///a.db?mode=ro", "known are: synchronous"),
        ("sqlite:///a.db?synchronous=off", "full or normal"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite://", "names no file"),
        ("sqlite://host/a.db", "names no file"),
        ("sqlite:///no/such/directory/a.db", "directory does not exist: create it"),
        ("sqlite:////", "is a directory"),
    ],
)
async def test_a_url_that_cannot_be_says_what_to_change(
    url: str, saying: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=saying):
        await opened(url)

    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "saying"),
    [
        (errno.EROFS, "read-only: remount it"),
        (errno.EACCES, "not write into its directory: change the directory's owner"),
        (errno.ENOSPC, "disk is full: free some space"),
        (errno.EIO, "Input/output error"),
    ],
)
async def test_a_file_that_cannot_be_made_says_why(
    number: int, saying: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(ConfigError, match=saying):
        await opened(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("flags", "saying"),
    [(0, "may not read and write it: change its owner"), (os.ST_RDONLY, "read-only: remount it")],
)
async def test_a_file_that_may_not_be_written_says_why(
    flags: int, saying: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await opened(f"sqlite:///{path}")).close()
    mount = SimpleNamespace(f_flag=flags)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: mount)

    with pytest.raises(ConfigError, match=saying):
        await opened(f"sqlite:///{path}")


async def test_a_directory_where_no_log_can_be_made_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DIRECTORY
        raise error

    monkeypatch.setattr(opening, "connect", refuse)
    monkeypatch.setattr(os, "access", lambda where, _: where != path.parent)

    with pytest.raises(ConfigError, match="not write into its directory: change"):
        await opened(f"sqlite:///{path}")


async def test_database_files_are_readable_by_the_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        engine = await opened(f"sqlite:///{path}")
        await engine.broker.sink("orders").send([a_message()])
    finally:
        os.umask(before)

    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in files_in(path.parent)}
    await engine.close()

    assert modes == dict.fromkeys(("q.db", "q.db-wal", "q.db-shm"), 0o600)


async def test_sent_messages_survive_reopening(path: Path) -> None:
    engine = await opened(f"sqlite:///{path}")
    message = a_message(b"\x00\xff", headers=(("a", b"\xfe"),))
    await engine.broker.sink("orders").send([message])
    await engine.close()

    engine = await opened(f"sqlite:///{path}")
    source = engine.broker.source("orders")
    (delivery,) = await source.receive(limit=1, wait=0, lease=LEASE)
    await engine.close()

    assert delivery.message == message


def test_migrations_are_numbered_from_one_without_gaps() -> None:
    numbers = [number for number, _ in opening.known()]

    assert numbers == list(range(1, len(numbers) + 1))


def test_a_script_is_cut_into_its_statements() -> None:
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN\n  SELECT 1;\n  SELECT 2;\nEND;\n"
    text = f"-- one; two\nCREATE TABLE a (b);\n{trigger}SELECT ';'"

    assert len(list(opening.statements(text))) == 3


async def test_a_damaged_file_is_refused_in_words(path: Path) -> None:
    engine = await opened(f"sqlite:///{path}")
    await engine.broker.sink("orders").send([a_message(b"x" * 900) for _ in range(400)])
    await engine.close()
    overwrite(path, behind=4096)

    with pytest.raises(Refused, match=r"is damaged: restore it from a backup"):
        await opened(f"sqlite:///{path}")


async def test_damage_found_while_running_is_refused_in_words(path: Path) -> None:
    engine = await opened(f"sqlite:///{path}")
    await engine.broker.sink("orders").send([a_message(b"x" * 900) for _ in range(400)])
    await engine.close()
    overwrite(path, behind=400_000)

    engine = await opened(f"sqlite:///{path}")
    source = engine.broker.source("orders")
    with pytest.raises(Refused, match=r"is damaged: restore it from a backup"):
        await source.receive(limit=400, wait=0, lease=LEASE)
    await engine.close()
