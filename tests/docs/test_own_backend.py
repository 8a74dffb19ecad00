"""The example of a backend keeps its promises, and can be installed like any other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deadletter import App, ConfigError, NotFound, open_engine
from docs.reading import ROOT, blocks

EXAMPLE = ROOT / "examples" / "own_backend"
sys.path.insert(0, str(EXAMPLE))


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TestNotebook = _load("test_notebook").TestNotebook


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip writes when it installs the example."""
    info = tmp_path / "notebook-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notebook\n")
    project = (EXAMPLE / "pyproject.toml").read_text()
    entry = 'notebook = "notebook:open_engine"'
    assert f'[project.entry-points."deadletter.backends"]\n{entry}' in project
    plain = entry.replace('"', "")
    (info / "entry_points.txt").write_text(f"[deadletter.backends]\n{plain}\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
async def test_an_app_runs_on_it_with_an_office_beside(tmp_path: Path) -> None:
    app = App(f"notebook:///{tmp_path}/orders.json", office=f"sqlite:///{tmp_path}/office.db")

    async with app:
        await app.send("orders", {"id": "o-1"})
        broker = (await app.engine()).broker
        found = await broker.source("orders").receive(limit=5, wait=0, lease=1)
        letters = await app.letters()

    assert [delivery.message.body for delivery in found] == [b'{"id":"o-1"}']
    assert letters.features.engine == "sqlite"


@pytest.mark.usefixtures("installed")
async def test_sent_messages_survive_reopening(tmp_path: Path) -> None:
    url, office = f"notebook:///{tmp_path}/orders.json", f"sqlite:///{tmp_path}/o.db"
    async with App(url, office=office) as app:
        await app.send("orders", b"kept", id="m-1")

    engine = await open_engine(url, office=office)

    (queue,) = await engine.broker.queues()
    assert (queue.options.name, queue.ready) == ("orders", 1)


@pytest.mark.usefixtures("installed")
async def test_without_letters_of_its_own_it_needs_an_office_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"notebook:///{tmp_path}/orders.json"

    with pytest.raises(ConfigError, match=r"cannot keep letters.*--office sqlite:///"):
        await App(url).letters()
    assert not (tmp_path / "deadletter.db").exists()

    monkeypatch.setenv("DLQ_OFFICE", "sqlite:///office.db")
    async with App(url) as app:
        assert (await app.letters()).features.engine == "sqlite"
    assert (tmp_path / "office.db").exists()


@pytest.mark.usefixtures("installed")
async def test_an_office_that_is_only_read_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLQ_OFFICE", "sqlite:///office.db")

    with pytest.raises(NotFound, match=r"there is no office at office\.db yet"):
        await open_engine(f"notebook:///{tmp_path}/orders.json", make=False)

    assert not (tmp_path / "office.db").exists()


@pytest.mark.usefixtures("installed")
async def test_as_an_office_it_is_refused(tmp_path: Path) -> None:
    app = App("memory://", office=f"notebook:///{tmp_path}/orders.json")

    with pytest.raises(ConfigError, match="cannot keep letters: use another office"):
        await app.letters()


def test_the_page_shows_the_test_as_it_is() -> None:
    page = (ROOT / "docs" / "adding-a-backend.md").read_text()
    (shown,) = (b for b in blocks(page) if b.file == "test_notebook.py")

    assert shown.text.partition("\n")[2] in (EXAMPLE / "test_notebook.py").read_text()
