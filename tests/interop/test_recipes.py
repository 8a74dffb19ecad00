"""The recipes for frameworks on Redis, typed as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from deadletter.testing.fakes import eventually
from deadletter.wiring.foreign import opened_foreign
from interop.redis_copies import emptied
from interop.rig import PATIENCE
from servers import Server

GUIDE = Path(__file__).parents[2] / "docs" / "recipes" / "redis.md"
LOCAL = "redis://localhost/0"
RECIPES = {"Celery on Redis": "celery:dead", "Dramatiq": "dramatiq:market:shop", "RQ": "rq:shop"}


def recipe(name: str, url: str) -> tuple[str, list[list[str]]]:
    """The code of a recipe and its commands, for a server."""
    section = GUIDE.read_text().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    [code] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    [typed] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = typed.replace(LOCAL, url).splitlines()
    return code.replace(LOCAL, url), [shlex.split(line, comments=True) for line in lines]


def started(words: list[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A command under way, whose output nobody needs."""
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("name", RECIPES)
async def test_recipe(name: str, redis_server: Server, tmp_path: Path) -> None:
    emptied(redis_server)
    code, commands = recipe(name, redis_server.url)
    (tmp_path / "tasks.py").write_text(code)
    paths = (str(Path(sys.executable).parent), os.environ["PATH"])
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "DLQ_URL": f"sqlite:///{tmp_path}/office.db",
        "PYTHONPATH": str(tmp_path),
    }
    async with opened_foreign(redis_server.url) as foreign:
        dead = foreign.drain(RECIPES[name])
        ends: list[Callable[[], Awaitable[int] | bool]] = [
            dead.depth,
            (tmp_path / "charged").exists,
        ]
        for words in commands:
            with started(words, tmp_path, environment) as ran:
                if words[0] in {"celery", "dramatiq", "rq"}:
                    await eventually(ends.pop(0), within=PATIENCE)
                    ran.terminate()
                else:
                    assert ran.wait(PATIENCE) == 0, words
        assert await dead.depth() == 0
    assert (tmp_path / "charged").read_text() == "o-1"
