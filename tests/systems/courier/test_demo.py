"""The README shows what the demo says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.transcript import difference, seen
from servers import Missing, MongoDB, Redis
from servers.fixtures import do_without
from systems.courier.rig import EXAMPLES

pytestmark = [pytest.mark.xdist_group("mongodb_server"), pytest.mark.slow]

README = Path(EXAMPLES) / "courier/README.md"


def shown() -> list[str]:
    """The transcript in the README."""
    (text,) = re.findall(r"```\n(## A courier.*?)```", README.read_text(), re.DOTALL)
    return seen(text)


def test_the_demo_tells_the_story_of_the_readme() -> None:
    for kind in (Redis, MongoDB):
        try:
            kind.find()
        except Missing as missing:
            do_without(missing)
    tests = str(Path(EXAMPLES).parent / "tests")

    done = subprocess.run(
        [sys.executable, "-m", "courier.demo", "--once"],
        env={**os.environ, "PYTHONPATH": f"{EXAMPLES}:{tests}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert difference(shown(), seen(done.stdout)) is None, done.stdout
