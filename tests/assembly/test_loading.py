"""`module:attribute` on the command line becomes an App."""

from pathlib import Path

import pytest

from deadletter import App, load_app
from deadletter.core.errors import ConfigError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_app_is_found_by_module_and_name(here: Path) -> None:
    (here / "market.py").write_text(
        "from deadletter import App\nstall = App('memory://')\n"
    )

    assert isinstance(load_app("market:stall"), App)


def test_the_name_is_app_unless_given(here: Path) -> None:
    (here / "bazaar.py").write_text(
        "from deadletter import App\napp = App('memory://')\n"
    )

    assert isinstance(load_app("bazaar"), App)


def test_a_missing_module_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="no module 'nowhere_at_all'"):
        load_app("nowhere_at_all:app")


def test_a_module_without_that_app_says_so(here: Path) -> None:
    (here / "empty_shop.py").write_text("")

    with pytest.raises(ConfigError, match="has no App called 'app'"):
        load_app("empty_shop")


def test_an_import_error_inside_the_module_is_not_hidden(here: Path) -> None:
    (here / "broken_shop.py").write_text("import not_there_either\n")

    with pytest.raises(ModuleNotFoundError, match="not_there_either"):
        load_app("broken_shop")
