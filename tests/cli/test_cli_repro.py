"""dlq repro: the written test fails as the message did, and passes after a fix."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Command
from office.making import make_letter

pytestmark = pytest.mark.slow

SHOP = """
from deadletter import App, Context

app = App("memory://")


@app.handler("orders")
def charge(order: dict, context: Context) -> None:
    assert context.attempt == 1
    order["vat_rate"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "shop.py").write_text(SHOP)
    monkeypatch.chdir(place)
    return place


def tried(place: Path) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=place,
        env={"PYTHONPATH": str(place), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout


def test_the_test_fails_as_the_letter_did_until_it_is_mended(dlq: Command, project: Path) -> None:
    letter = make_letter(error_type="builtins.KeyError", error_text="'vat_rate'")
    dlq.keep(letter)

    ran = dlq("repro", letter.id[:8], "shop:app")
    code, said = tried(project)

    assert ran.code == 0, ran.err
    assert f"test_letter_{letter.id[:10]}.py" in ran.out
    assert code == 1
    assert "KeyError: 'vat_rate'" in said
    (project / "shop.py").write_text(SHOP.replace('order["vat_rate"]', "pass"))
    assert tried(project)[0] == 0


def test_files_that_are_there_are_left_alone(dlq: Command, project: Path) -> None:
    dlq.keep(letter := make_letter())
    dlq("repro", letter.id, "shop:app")

    again = dlq("repro", letter.id, "shop:app")
    forced = dlq("repro", letter.id, "shop:app", "--force", "--json")

    assert again.code == 4
    assert "--force" in again.err
    assert forced.document["files"] == [
        f"tests/letter_{letter.id[:10]}.json",
        f"tests/test_letter_{letter.id[:10]}.py",
    ]


def test_secrets_stay_in_the_office_unless_told_otherwise(dlq: Command, project: Path) -> None:
    dlq.keep(letter := make_letter(body=b'{"password": "hunter2"}'))

    dlq("repro", letter.id, "shop:app", "--into", "masked")
    dlq("repro", letter.id, "shop:app", "--into", "clear", "--reveal")

    name = f"letter_{letter.id[:10]}.json"
    assert "hunter2" not in (project / "masked" / name).read_text()
    assert "hunter2" in (project / "clear" / name).read_text()


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        ([], "dlq repro ID shop:app"),
        (["shop"], "such as shop:app"),
        (["shop:app; import os"], "such as shop:app"),
        (["a b:c"], "such as shop:app"),
        (["shop:app", "--into", "shop.py"], "cannot create shop.py"),
    ],
)
def test_impossible_repros_are_explained(
    dlq: Command, project: Path, words: list[str], help_: str
) -> None:
    assert (project / "shop.py").exists()
    dlq.keep(letter := make_letter())

    ran = dlq("repro", letter.id, *words)

    assert ran.code == 2
    assert help_ in " ".join(ran.err.split())


@pytest.mark.parametrize(
    "text",
    [
        "\nimport os\nos.abort()",
        "\r\nraise SystemExit",
        '"""\nraise SystemExit\n"""',
        "\x0craise SystemExit",
        "\u2028raise SystemExit",
        "{module}",
        "x" * 5_000,
    ],
)
def test_no_error_gets_out_of_its_comment(dlq: Command, project: Path, text: str) -> None:
    dlq.keep(letter := make_letter(error_text=text))

    dlq("repro", letter.id, "shop:app")

    code = (project / "tests" / f"test_letter_{letter.id[:10]}.py").read_text()
    kinds = [type(one).__name__ for one in ast.parse(code).body]
    assert kinds == ["Expr", *["ImportFrom"] * 2, "FunctionDef"]
