"""A database file that is removed or replaced while it is in use."""
# ruff: noqa: ASYNC240 -- the files are small, and nobody waits

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.core.errors import ConfigError, StoreLost, Unavailable
from deadletter.ports import Engine, loss_of
from deadletter.stores.sqlite import open_engine
from deadletter.stores.sqlite.connection import folder_state
from deadletter.testing.fakes import FakeClock, SeededDice, eventually
from deadletter.testing.queue_bench import a_message


async def opened(path: Path) -> Engine:
    url = f"sqlite:///{path}"
    return await open_engine(url, clock=FakeClock(), dice=SeededDice())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "q.db"


@pytest.fixture
async def engine(path: Path) -> AsyncIterator[Engine]:
    engine = await opened(path)
    await engine.broker.sink("orders").send([a_message()])
    yield engine
    await engine.close()


def unlink(path: Path) -> None:
    path.unlink()


def unlink_all(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def rename_another_over_it(path: Path) -> None:
    other = path.with_name("other.db")
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    other.rename(path)


def create_another(path: Path) -> None:
    path.unlink()
    path.touch()


def remove_the_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def replace_shared_memory(path: Path) -> None:
    shm = Path(f"{path}-shm")
    shm.unlink()
    shm.touch()


LOSSES = [
    unlink,
    unlink_all,
    remove_directory,
    rename_another_over_it,
    create_another,
    remove_the_log,
    replace_shared_memory,
]


@pytest.mark.parametrize("lose", LOSSES)
async def test_a_lost_file_is_neither_written_nor_read(
    engine: Engine, path: Path, lose: Callable[[Path], None]
) -> None:
    assert loss_of(engine) is None
    lose(path)

    for _ in range(2):
        with pytest.raises(StoreLost, match="while this process used it"):
            await engine.broker.sink("orders").send([a_message()])
    assert loss_of(engine) is not None


def restore_a_backup(path: Path) -> None:
    """Replace the files as `rsync -a` does: the folder's old time comes back."""
    before = path.parent.stat()
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("old"))
    shutil.copytree(path.parent.with_name("old"), path.parent)


@pytest.mark.parametrize("lose", [*LOSSES, restore_a_backup, replace_the_folder])
async def test_a_file_lost_in_a_folder_at_rest_is_noticed(
    engine: Engine, path: Path, lose: Callable[[Path], None]
) -> None:
    async def is_at_rest() -> bool:
        return folder_state(str(path.parent)) is not None

    await eventually(is_at_rest)
    for _ in range(2):  # from here on one look at the folder is enough
        await engine.broker.sink("orders").send([a_message()])
    lose(path)

    with pytest.raises(StoreLost, match="while this process used it"):
        await engine.broker.sink("orders").send([a_message()])


async def test_the_state_of_a_folder_is_unknown_right_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "new").touch()

    assert folder_state(str(tmp_path)) is None
    assert folder_state(str(tmp_path / "missing")) is None


@pytest.mark.parametrize("lose", LOSSES[:5])
async def test_readers_notice_too(engine: Engine, path: Path, lose: Callable[[Path], None]) -> None:
    await engine.broker.queues()
    lose(path)

    with pytest.raises(StoreLost):
        await engine.broker.queues()


@pytest.mark.parametrize("lose", LOSSES[:5])
async def test_no_connection_opens_another_file_later(
    engine: Engine, path: Path, lose: Callable[[Path], None]
) -> None:
    lose(path)
    link = engine.broker._db.reader()  # type: ignore[attr-defined]

    with pytest.raises(StoreLost):
        link.get()


@pytest.mark.parametrize("lose", LOSSES[:5])
async def test_the_process_never_begins_a_new_file_in_its_place(
    path: Path, lose: Callable[[Path], None]
) -> None:
    app = App(f"sqlite:///{path}")
    await app.send("orders", {"n": 1})
    lose(path)
    before = path.read_bytes() if path.exists() else None

    with pytest.raises(StoreLost):
        await app.send("orders", {"n": 2})
    await app.close()
    path.parent.mkdir(exist_ok=True)
    for _ in range(2):
        with pytest.raises(StoreLost):
            await app.send("orders", {"n": 3})  # the App opens its engine again
        with pytest.raises(StoreLost):
            await opened(path)

    assert (path.read_bytes() if path.exists() else None) == before


async def test_the_same_file_may_come_back(engine: Engine, path: Path) -> None:
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreLost):
        await engine.broker.sink("orders").send([a_message()])
    away.rename(path)

    await engine.broker.sink("orders").send([a_message()])

    (queue,) = await engine.broker.queues()
    assert queue.ready == 2


async def test_a_file_removed_after_use_may_be_begun_again(path: Path) -> None:
    async with App(f"sqlite:///{path}") as app:
        await app.send("orders", {"n": 1})
    path.unlink()

    async with App(f"sqlite:///{path}") as app:
        await app.send("orders", {"n": 1})


async def test_the_log_of_a_missing_file_is_kept(path: Path) -> None:
    engine = await opened(path)
    await engine.broker.sink("orders").send([a_message()])
    away = path.with_name("away.db")
    path.rename(away)
    await engine.close()

    log = Path(f"{path}-wal")
    assert log.stat().st_size
    shutil.copy(away, path)  # with its log, nothing is missing
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
    connection.close()
    assert count == 1


async def test_no_file_is_begun_beside_the_log_of_another(path: Path) -> None:
    log = Path(f"{path}-wal")
    log.write_bytes(b"committed")

    with pytest.raises(ConfigError, match=r"missing, but its log q\.db-wal is there"):
        await opened(path)

    assert log.read_bytes() == b"committed"
    assert not path.exists()


def test_a_lost_store_counts_as_unavailable() -> None:
    assert issubclass(StoreLost, Unavailable)
