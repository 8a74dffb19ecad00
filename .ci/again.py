"""
Which tests passed only when they were tried again.

    python .ci/again.py .reports    by the reports of a run and of the run `…-again`
"""

# ruff: noqa: INP001, T201 -- a script

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "systems"))

from proof import Outcome, outcomes


def main(reports: Path) -> None:
    """Name them, if there are any."""
    for again in sorted(reports.glob("*-again.xml")):
        first = again.with_name(again.name.replace("-again", ""))
        before = outcomes([first] if first.exists() else [])
        for test, ended in outcomes([again]).items():
            if ended is Outcome.PASSED and before.get(test) is not Outcome.PASSED:
                print(f"passed only when tried again: {test}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
