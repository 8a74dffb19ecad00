"""What is written from the code is up to date."""

import os
import subprocess
import sys
from pathlib import Path

import deadletter
from docs.reading import ROOT


def test_tables_and_pictures_are_up_to_date() -> None:
    source = Path(deadletter.__file__).parent.parent

    checked = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr[-2000:]
