"""dlq init: a starter project, with a handler, its test, and files to run it."""

import keyword
import re
import sys
from pathlib import Path
from typing import Final

from deadletter.core.errors import ConfigError, Conflict

from .archive import new_file
from .desk import AtDesk

_APP: Final = '''\
"""The handlers of {name}."""

from deadletter import App, Exponential
from msgspec import Struct

app = App()  # its engine is `url` in deadletter.toml, or DLQ_URL


class Order(Struct):
    """The body of a message; one that does not fit becomes a dead letter at once."""

    id: str
    amount: int
    country: str = "PT"


VAT = {{"PT": 23, "DE": 19}}


@app.handler("orders", max_attempts=3, backoff=Exponential(1.0))
async def charge(order: Order) -> None:
    """Charge an order and send a receipt."""
    total = order.amount * (100 + VAT[order.country]) // 100
    await app.send("receipts", {{"order": order.id, "total": total}})
'''

_TEST: Final = '''\
"""Tests of the handlers: real policies, an engine in memory, no waiting."""

from {name} import app


def test_an_order_is_charged_with_vat() -> None:
    with app.testing() as t:
        t.send("orders", {{"id": "o-1", "amount": 100}})
        t.settled()
        t.no_letters()
        assert [sent.value for sent in t.sent] == [{{"order": "o-1", "total": 123}}]


def test_an_unknown_country_becomes_a_letter_after_three_attempts() -> None:
    with app.testing() as t:
        t.send("orders", {{"id": "o-2", "amount": 100, "country": "NO"}})
        t.settled()
        letter = t.letter("orders")
    assert letter.head.error_name == "KeyError"
    assert letter.head.attempts == 3
'''

_SETTINGS: Final = """\
# Settings of `dlq` in this directory. DLQ_URL and the like override them.
url = "sqlite:///{name}.db"
app = "{name}:app"
"""

_PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["deadletter[web,reload]"]

[project.optional-dependencies]
test = ["pytest"]

[tool.hatch.build.targets.wheel]
only-include = ["{name}.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
dlq_app = "{name}:app"
"""

_COMPOSE: Final = """\
# docker compose up --build: a worker, and the console at http://127.0.0.1:8418
# docker compose logs console: shows the first token, with which you sign in
x-dlq: &dlq
  build:
    context: .
    dockerfile_inline: |
      FROM python:3.13-slim
      WORKDIR /app
      COPY . .
      RUN pip install --no-cache-dir .
  environment:
    DLQ_URL: sqlite:////data/{name}.db
    DLQ_SERVE_HOST: 0.0.0.0
    PYTHONUNBUFFERED: "1"
  volumes: ["data:/data"]
  restart: unless-stopped

services:
  worker:
    <<: *dlq
    command: dlq work
    stop_grace_period: 45s  # running handlers finish

  console:
    <<: *dlq
    command: dlq serve
    ports: ["127.0.0.1:8418:8418"]

volumes:
  data:
"""

_CI: Final = """\
name: test
on: [push, pull_request]

jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.13"
      - run: pip install '.[test]'
      - run: python -m pytest
"""

_IGNORED: Final = """\
__pycache__/
*.db*
"""

_FILES: Final = {
    "{name}.py": _APP,
    "tests/test_{name}.py": _TEST,
    "deadletter.toml": _SETTINGS,
    "pyproject.toml": _PROJECT,
    "compose.yaml": _COMPOSE,
    ".github/workflows/test.yaml": _CI,
    ".gitignore": _IGNORED,
}
_KEPT: Final = frozenset({".git"})  # a directory with nothing else counts as empty
_TAKEN: Final = frozenset({*sys.stdlib_module_names, "deadletter", "tests", "pytest", "msgspec"})


def init(directory: Path = Path(), /, *, name: str | None = None, desk: AtDesk) -> None:
    """
    Write a starter project into an empty directory.

    It has a handler, its test, settings, and files for containers and CI. Nothing is
    overwritten.

    Args:
        directory: Where to write it; it is created if it does not exist (default: here).
        name: The name of its module (default: that of the directory).
    """
    place = directory.resolve()
    chosen = _module_name(place.name) if name is None else _checked(name)
    _check_empty(place, directory)
    words = {"name": chosen, "distribution": chosen.replace("_", "-").strip("-")}
    files = {path.format(**words): text.format(**words) for path, text in _FILES.items()}
    for path, text in files.items():
        file = place / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot create {file.parent}: {error.strerror}") from error
        with new_file(file, force=False) as opened:
            opened.write(text.encode())
    if desk.as_json:
        desk.document({"files": list(files), "app": f"{chosen}:app"})
        return
    desk.tell(f"{', '.join(files)} written.")
    go = "" if directory == Path() else f"cd {directory}; "
    desk.hint(f"{go}python -m pytest      test it")
    desk.hint(f"{go}dlq work --reload     run it; it starts again when the code changes")


def _module_name(directory: str) -> str:
    """Return the name of a module that is like that of a directory."""
    name = re.sub(r"[^a-z0-9_]+", "_", directory.lower()).strip("_")
    return name if _is_usable(name) else "shop"


def _checked(name: str) -> str:
    if not _is_usable(name):
        raise ConfigError(
            f"{name[:40]!a} cannot be the name of the module: use small letters, digits and _,"
            " and no name of a module that Python or the tests need"
        )
    return name


def _is_usable(name: str) -> bool:
    is_name = re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) is not None
    return is_name and not keyword.iskeyword(name) and name not in _TAKEN


def _check_empty(place: Path, given: Path) -> None:
    try:
        there = sorted(one.name for one in place.iterdir() if one.name not in _KEPT)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"cannot write into {given}: {error.strerror}") from error
    if there:
        raise Conflict(
            f"{place.name or place} is not empty, it has {there[0]}: nothing was written. Name"
            " a new directory, as in `dlq init shop`"
        )
