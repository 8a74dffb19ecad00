"""The same, for code that does not await."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deadletter.core.errors import ConfigError, NotFound
from deadletter.sync import SyncApp


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
        with pytest.raises(ConfigError, match="await it"):
            app.call(nested())
