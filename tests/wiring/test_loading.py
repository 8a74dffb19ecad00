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
    (here / "market.py").write_text("from deadletter import App\nstall = App('memory://')\n")

    assert isinstance(load_app("market:stall"), App)


def test_the_name_is_app_unless_given(here: Path) -> None:
    (here / "bazaar.py").write_text("from deadletter import App\napp = App('memory://')\n")

    assert isinstance(load_app("bazaar"), App)


def test_a_missing_module_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="no module 'nowhere_at_all'"):
        load_app("nowhere_at_all:app")


def test_a_module_without_that_app_says_so(here: Path) -> None:
    (here / "empty_shop.py").write_text("")

    with pytest.raises(ConfigError, match="has no App named 'app'"):
        load_app("empty_shop")


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("\nimport not_there_either\n", 2, "No module named 'not_there_either'"),
        ("x = 1\ny = = 2\n", 2, "SyntaxError: invalid syntax"),
        ("\n\nraise RuntimeError('no licence')\n", 3, "RuntimeError: no licence"),
        ("import sys\nsys.exit('come later')\n", 2, "SystemExit: come later"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: Expecting"),
        ("assert not True\n", 1, "AssertionError"),
        (
            "from deadletter import App\nApp().handler('a', memory_limit=1)\n",
            2,
            "memory_limit applies to isolated handlers only",
        ),
    ],
)
def test_import_errors_are_reported_with_file_and_line(
    here: Path, source: str, line: int, said: str
) -> None:
    file = here / "broken_shop.py"
    file.write_text(source)

    with pytest.raises(ConfigError) as found:
        load_app("broken_shop:app")

    place = f"could not import broken_shop: {file}, line {line}: "
    assert str(found.value).startswith(place)
    assert said in str(found.value)


def test_a_module_that_the_named_one_imports_is_where_it_broke(here: Path) -> None:
    (here / "corner_shop.py").write_text("import corner_prices\n")
    (here / "corner_prices.py").write_text("\nVAT = 1 / 0\n")

    with pytest.raises(ConfigError, match=r"corner_prices\.py, line 2: ZeroDivision"):
        load_app("corner_shop")


@pytest.mark.parametrize("spec", ["", ":app", ".shop:app"])
def test_no_module_at_all_says_what_to_give(spec: str) -> None:
    with pytest.raises(ConfigError, match="such as shop:app"):
        load_app(spec)


def test_an_interrupt_while_importing_is_one(here: Path) -> None:
    (here / "slow_shop.py").write_text("raise KeyboardInterrupt\n")

    with pytest.raises(KeyboardInterrupt):
        load_app("slow_shop")
