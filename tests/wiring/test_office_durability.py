"""Offices that are not power-safe are refused, unless somebody accepts them."""

from pathlib import Path

import pytest

from deadletter.app import App
from deadletter.cli.app import run
from deadletter.core.errors import ConfigError
from deadletter.ports import Durability
from deadletter.settings import OfficeDurability, load_settings
from deadletter.system import SystemClock, SystemDice
from deadletter.wiring.engines import opened
from deadletter.wiring.serving import serving_engine

REFUSED = r"is kill-safe only: a power cut may lose .* must be power-safe: use .*"


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DLQ_URL", "DLQ_OFFICE", "DLQ_CONFIG", "DLQ_OFFICE_DURABILITY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def weak(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/weak.db?synchronous=normal"


async def test_an_app_refuses_a_weak_office(weak: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED) as refused:
        await App(weak).send("orders", {})

    assert 'office_durability = "kill-safe"' in str(refused.value)
    assert "DLQ_OFFICE_DURABILITY=kill-safe" in str(refused.value)


async def test_a_weak_office_for_another_engine_is_refused(weak: str, tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/queue.db"):
        with pytest.raises(ConfigError, match=REFUSED):
            await App(url, office=weak).letters()


async def test_a_weak_queue_with_a_safe_office_is_fine(weak: str, tmp_path: Path) -> None:
    async with App(weak, office=f"sqlite:///{tmp_path}/office.db") as app:
        assert (await app.letters()).features.durability is Durability.POWER_SAFE


async def test_messages_on_disk_are_not_buried_in_memory(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/queue.db", office="memory://")

    with pytest.raises(ConfigError, match="in memory is none only: the end of the"):
        await app.letters()


@pytest.mark.parametrize("office", [None, "memory://"])
async def test_everything_in_memory_needs_no_permission(office: str | None) -> None:
    async with App("memory://", office=office) as app:
        await app.send("orders", {})


@pytest.mark.parametrize("accepted", ["kill-safe", "none"])
async def test_an_app_may_accept_it(weak: str, accepted: OfficeDurability) -> None:
    async with App(weak, office_durability=accepted) as app:
        await app.send("orders", {})


async def test_accepting_less_than_it_is_does_not_help(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/queue.db"
    app = App(url, office="memory://", office_durability="kill-safe")

    with pytest.raises(ConfigError, match="is none only"):
        await app.letters()


async def test_the_settings_may_accept_it(weak: str, tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('office_durability = "kill-safe"\n')

    async with opened(weak) as engine:
        assert engine.features.durability is Durability.KILL_SAFE


async def test_a_server_refuses_it_too(weak: str) -> None:
    def ground(**environ: str) -> object:
        settings = load_settings(environ={"DLQ_URL": weak, **environ})
        return serving_engine(settings, clock=SystemClock(), dice=SystemDice())

    with pytest.raises(ConfigError, match=REFUSED):
        async with ground():  # type: ignore[attr-defined]
            pass
    async with ground(DLQ_OFFICE_DURABILITY="kill-safe"):  # type: ignore[attr-defined]
        pass


@pytest.mark.parametrize(
    "words",
    [
        ["send", "orders", "{}"],
        ["work", "shop:app"],
        ["serve", "--check"],
        ["import", "letters.jsonl"],
    ],
    ids=lambda words: words[0],
)
def test_commands_refuse_it(
    weak: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DLQ_URL", weak)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop.py").write_text("from deadletter import App\napp = App()\n")
    (tmp_path / "letters.jsonl").write_text("")
    (tmp_path / "weak.db").touch()

    assert run(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "kill-safe only: a power cut may lose the latest letters" in said


def test_a_wrong_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"DLQ_OFFICE_DURABILITY": "fast"}

    with pytest.raises(ConfigError, match="must be power-safe or kill-safe or none"):
        load_settings(environ=environ)
