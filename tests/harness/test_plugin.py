"""The plugin for pytest, in processes of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
from deadletter import App, NoBackoff

app = App("postgresql://nobody@192.0.2.1/none")


@app.handler("orders", max_attempts=2, backoff=NoBackoff())
async def charge(order: dict) -> None:
    await app.send("mails", order["id"])
"""

WITHOUT_AWAITING = """
from shop import app


def test_with_the_fixture(dlq) -> None:
    dlq.send("orders", {"id": 1})
    dlq.settled()
    assert dlq.sent[0].value == 1
    dlq.no_letters()


def test_without_it() -> None:
    with app.testing() as t:
        t.send("orders", {})
        t.settled()
        assert t.letter().head.error_name == "KeyError"


def test_that_fails(dlq) -> None:
    dlq.send("orders", {})
    dlq.settled()
    dlq.no_letters()
"""

AWAITING = """
from shop import charge


async def test_with_the_fixture(async_dlq) -> None:
    await charge.send({"id": 1})
    await async_dlq.settled()
    assert async_dlq.sent[0].value == 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pytest.ini").write_text("[pytest]\ndlq_app = shop:app\nasyncio_mode = auto\n")
    return tmp_path


def run(place: Path, *words: str) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=place,
        env={"PYTHONPATH": str(place), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("words", [(), ("-p", "no:asyncio")])
def test_tests_without_awaiting_need_no_other_plugin(project: Path, words: tuple[str, ...]) -> None:
    (project / "test_shop.py").write_text(WITHOUT_AWAITING)

    code, said = run(project, *words)

    assert code == 1
    assert "1 failed, 2 passed" in said
    assert "KeyError: 'id'" in said
    assert "expected no letters, found 1" in said


def test_tests_that_await_have_a_fixture_too(project: Path) -> None:
    (project / "test_shop.py").write_text(AWAITING)

    assert run(project)[0] == 0


def test_without_the_setting_the_fixture_says_what_to_write(project: Path) -> None:
    (project / "test_shop.py").write_text(WITHOUT_AWAITING)
    (project / "pytest.ini").write_text("[pytest]\n")

    assert 'write dlq_app = "shop:app"' in run(project)[1]


def test_the_plugin_costs_nothing_when_unused(project: Path) -> None:
    (project / "test_other.py").write_text(
        "import sys\n\n\ndef test_other() -> None:\n"
        "    ours = {n for n in sys.modules if n.startswith('deadletter')}\n"
        "    assert ours == {'deadletter', 'deadletter.pytest_plugin'}\n"
        "    assert 'msgspec' not in sys.modules\n"
    )

    code, said = run(project)

    assert code == 0, said


def test_nothing_but_the_plugin_and_the_contracts_needs_pytest() -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "import deadletter.app, deadletter.harness, deadletter.testing.virtual_time\n"
        "with deadletter.app.App('memory://').testing() as t: pass\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "no handler" in ran.stderr
