"""What the environment cannot be is refused at the start, by name."""

import subprocess
import sys
from pathlib import Path

import pytest

import courier
from courier.settings import DLQ, MAIN, load, profile
from deadletter import ConfigError

NEEDED = {
    "QUEUE_URL": "redis://localhost",
    "MONGODB_URL": "mongodb://localhost",
    "COURIER_SECRET": "sixteen letters or more",
}


def test_three_variables_are_enough() -> None:
    settings = load(NEEDED)

    assert settings.signature_window_seconds == 300
    assert settings.worker_concurrency == 10
    assert settings.processed_events_ttl_days == 30
    assert NEEDED["COURIER_SECRET"] not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUEUE_URL", ""),
        ("COURIER_SECRET", "short"),
        ("API_PORT", "many"),
        ("WORKER_CONCURRENCY", "0"),
        ("PROCESSED_EVENTS_TTL_DAYS", "0"),
    ],
)
def test_invalid_settings_are_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load({**NEEDED, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RETRY_MAX_ATTEMPTS", "0"),
        ("RETRY_BACKOFF_BASE_MS", "-1"),
        ("RETRY_BACKOFF_MULTIPLIER", "0.5"),
        ("RETRY_JITTER_PERCENT", "101"),
        ("DLQ_TTL_DAYS", "0"),
    ],
)
def test_a_retry_variable_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        profile({name: value})


def test_the_dead_letter_queue_belongs_to_the_main_queue() -> None:
    assert (MAIN, DLQ) == ("courier-events-main", "courier-events-dlq")
    assert profile({}).policy_for(MAIN).dead_queue == DLQ


@pytest.mark.parametrize("module", ["courier.api", "courier.worker"])
def test_a_process_with_a_wrong_environment_ends_and_says_why(module: str) -> None:
    path = str(Path(courier.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", module],
        env={"PYTHONPATH": path, **NEEDED, "COURIER_SECRET": "short"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "COURIER_SECRET" in done.stderr
    assert "Traceback" not in done.stderr
