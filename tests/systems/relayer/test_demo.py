"""The demo runs, and its README shows what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.transcript import difference
from stage import HERE

pytestmark = pytest.mark.xdist_group("sqs_server")

README = HERE / "relayer" / "README.md"
TESTS = Path(__file__).parents[2]
# Whole ids, and their beginnings where only ids stand.
_LETTER = re.compile(
    r"\b[a-z2-7]{24}\b"
    r"|(?:(?<=^   )|(?<=replay )|(?<=review )|(?<=discard ))[a-z2-7]{10}\b"
)


def masked(text: str) -> list[str]:
    """Lines in which one letter is like another."""
    return [_LETTER.sub("LETTER", line) for line in text.splitlines()]


def test_the_readme_shows_what_the_demo_says() -> None:
    shown = README.read_text().split("```text\n")[1].partition("```")[0]

    ran = subprocess.run(
        [sys.executable, "-m", "relayer.demo", "--once"],
        env={**os.environ, "PYTHONPATH": f"{HERE}:{TESTS}"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert difference(masked(shown), masked(ran.stdout)) is None
