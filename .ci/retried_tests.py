"""
List the tests that passed only when they were retried.

    python .ci/retried_tests.py .reports    by the reports of all runs and of their retries
"""

# ruff: noqa: INP001, T201 -- a script

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "systems"))

from reports import Outcome, Report, merge_outcomes, read_report


def main(folder: Path) -> None:
    """Print one line for each of them."""
    reports: list[Report] = []
    for file in sorted(folder.glob("*.xml")):
        try:
            reports.append(read_report(file))
        except ValueError as error:
            print(error)
    reports.sort(key=lambda report: report.is_retry)  # first runs first
    for test, outcome in merge_outcomes(reports).items():
        if outcome is Outcome.RETRIED:
            print(f"{outcome}: {test}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
