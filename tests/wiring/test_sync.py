"""The same, for code that does not await."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deadletter.core.errors import ConfigError, NotFound, Unavailable
from deadletter.sync import SyncApp
from loop_rig import forked_senders, loops_one_after_another


def test_messages_are_sent_from_many_threads(tmp_path: Path) -> None:
    with SyncApp(f"sqlite:///{tmp_path}/a.db") as app:
        with ThreadPoolExecutor(8) as threads:
            ids = list(threads.map(lambda n: app.send("orders", n), range(50)))
        many = app.send_many("orders", [b"a", b"b"])

    assert len({*ids, *many}) == 52


def test_letters_are_searched(tmp_path: Path) -> None:
    with SyncApp(f"sqlite:///{tmp_path}/a.db") as app:
        assert app.search("is:pending").heads == ()
        with pytest.raises(NotFound):
            app.letter("abcdef")


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    app = SyncApp(f"sqlite:///{tmp_path}/a.db")
    app.close()
    app.close()


def test_any_coroutine_can_be_waited_for_but_not_where_it_would_run() -> None:
    with SyncApp("memory://") as app:

        async def nested() -> None:
            app.call(app.app.send("orders", b"x"))

        assert app.call(app.app.send("orders", b"x"))
        with pytest.raises(ConfigError, match="await the method"):
            app.call(nested())


def test_no_thread_runs_before_the_first_call() -> None:
    before = threading.active_count()

    app = SyncApp("memory://")
    assert threading.active_count() == before
    app.send("orders", b"x")
    app.close()

    with pytest.raises(ConfigError, match="is closed"):
        app.send("orders", b"x")


def test_a_call_that_takes_too_long_is_given_up() -> None:
    app = SyncApp("memory://", timeout=0.05)

    with pytest.raises(Unavailable, match=r"within 0\.05 seconds: the call may or may not"):
        app.call(asyncio.sleep(60))


def test_a_timeout_of_the_work_itself_is_raised_as_it_is() -> None:
    async def late() -> None:
        raise TimeoutError("the customer's")

    with SyncApp("memory://") as app, pytest.raises(TimeoutError, match="customer's"):
        app.call(late())


def test_the_sync_app_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    assert forked_senders(f"sqlite:///{tmp_path}/a.db") == 5


def test_an_embedded_engine_serves_loops_beside_each_other(tmp_path: Path) -> None:
    assert loops_one_after_another(f"sqlite:///{tmp_path}/a.db") == "(5, [])"
    assert loops_one_after_another("memory://") == "(5, [])"
