"""One App in several event loops, and in processes that were forked."""

from pathlib import Path

import pytest

from deadletter import App, ConfigError
from engines.forgery_rig import ENGINES, forger_on, unused
from loop_rig import forked_senders, loops_one_after_another
from servers import Server


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> str:
    return forger_on(request.param, request).url


def test_senders_on_both_sides_of_a_fork(url: str, tmp_path: Path) -> None:
    office = f"sqlite:///{tmp_path}/office.db"

    assert forked_senders(url, office, unused("orders")) == 5


def test_loops_one_after_another_and_one_beside(url: str, tmp_path: Path) -> None:
    office = f"sqlite:///{tmp_path}/office.db"

    said = loops_one_after_another(url, office, unused("orders"))

    assert said.startswith("(4, ['this App is open in another event loop")


def test_an_office_in_postgresql_after_a_fork(postgresql_server: Server) -> None:
    assert forked_senders(postgresql_server.url) == 5


def test_loops_on_postgresql(postgresql_server: Server) -> None:
    said = loops_one_after_another(postgresql_server.url, "", unused("orders"))

    assert said.startswith("(4, ['this App is open in another event loop")


async def test_a_broker_needs_an_office_that_is_named(redis_server: Server) -> None:
    with pytest.raises(ConfigError, match="redis cannot keep letters, and no office is"):
        await App(redis_server.url).engine()
