"""What is written: in which language, and how much of it is run by tests."""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from stage import HERE

pytestmark = pytest.mark.xdist_group("sqs_server")

ROOT = HERE.parent
OURS = Path(__file__).parent
# Enough of them to run most of the code, and no more.
SOME = (
    "test_api.py::test_a_transaction_may_wish_to_be_retried[gasless]",
    "test_api.py::test_the_chain_says_how_it_went",
    "test_api.py::test_without_its_queue_nothing_is_promised",
    "test_classification.py::test_patterns_can_be_added_in_a_file",
    "test_dead_letters.py::test_malformed_messages_fail_in_the_table_and_are_deleted",
    "test_dead_letters.py::test_malformed_messages_in_the_dead_letter_queue_are_kept_as_letters",
    "test_dead_letters.py::test_finished_transactions_are_only_deleted[mined]",
    "test_relaying.py::test_permanent_failures_fail_at_once_without_the_dead_letter_queue",
    "test_reprocessing.py::test_past_the_limit_it_has_failed_and_is_for_people_only",
    "test_service.py::test_one_consumer_alone_is_refused",
    "test_queues.py::test_queues_are_made_on_request_and_existing_policies_stay",
    "test_service.py::test_the_table_can_be_made_beforehand",
    "test_settings.py",
    "test_table.py",
)


def written() -> Iterator[Path]:
    for folder in (HERE / "relayer", OURS):
        yield from (f for f in folder.rglob("*.*") if "__pycache__" not in f.parts)
    yield from (ROOT / "docs" / "systems").glob("relayer.*")


def test_everything_is_written_in_english() -> None:
    files = list(written())
    foreign = {
        file.name: letters
        for file in files
        if (letters := {one for one in file.read_text() if is_foreign(one)})
    }

    assert foreign == {}
    assert len(files) > 30


def is_foreign(one: str) -> bool:
    return one.isalpha() and "LATIN" not in unicodedata.name(one)


@pytest.mark.slow
def test_nine_tenths_of_the_code_are_run_by_tests(tmp_path: Path) -> None:
    config = tmp_path / "coveragerc"
    config.write_text(
        "[run]\nbranch = true\nsource_pkgs = relayer\n"
        f"data_file = {tmp_path}/coverage\n"
        "omit = */relayer/demo.py\n */relayer/stub.py\n"  # they play the others
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("COV")}

    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"{OURS}/{name}" for name in SOME),
            *("--cov", f"--cov-config={config}", "--cov-fail-under=90"),
        ],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert "Required test coverage of 90% reached" in ran.stdout, ran.stdout[-3000:]
    assert ran.returncode == 0
