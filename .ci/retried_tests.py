"""
List the tests that passed only when they were retried.

    python .ci/retried_tests.py .reports    by the reports of all runs and of their retries
"""

# ruff: noqa: INP001, T201 -- a script

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "systems"))

from reports import Outcome, merge_outcomes, read_report


def main(folder: Path) -> None:
    """Print one line for each of them."""
    reports = [read_report(file) for file in sorted(folder.glob("*.xml"))]
    first_runs_first = sorted(reports, key=lambda report: report.is_retry)
    for test, outcome in merge_outcomes(first_runs_first).items():
        if outcome is Outcome.RETRIED:
            print(f"{outcome}: {test}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
