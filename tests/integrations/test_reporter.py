"""Reports: kept for later without an office, counted when lost, and never in a task's way."""

import json
import os
import warnings
from base64 import b64encode
from pathlib import Path

import pytest
from celery import Celery

from deadletter.core.errors import ConfigError
from deadletter.core.events import Event, FilingFailed
from deadletter.intake.dialects import Found
from deadletter.intake.dialects.celery_envelope import found_in
from deadletter.integrations.celery import install
from deadletter.integrations.reporter import Counts, Reporter
from deadletter.sync import SyncApp
from deadletter.testing.fakes import eventually


def found(task_id: str) -> Found:
    """A task of Celery in the queue `shop`."""
    body = b64encode(b'[["o-1"], {}, {}]').decode()
    properties = {"body_encoding": "base64", "delivery_tag": "1"}
    headers = {"task": "charge", "id": task_id, "root_id": task_id, "retries": 0}
    envelope = {"body": body, "headers": headers, "properties": properties}
    return found_in("shop", json.dumps(envelope).encode(), 0)


def letters(url: str) -> list[str]:
    with SyncApp(url) as office:
        return sorted(head.message_id for head in office.search().heads)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/later/office.db"


async def test_reports_wait_for_an_office_that_is_away(tmp_path: Path, url: str) -> None:
    events: list[Event] = []
    filed_later: list[str] = []
    (tmp_path / "later").touch()  # where the office's folder should be
    reporter = Reporter(url, observe=events.append)

    assert not reporter.died(found("t-1"), filed_later=lambda: filed_later.append("t-1"))
    assert not reporter.died(found("t-2"))
    waiting = reporter.counts
    (tmp_path / "later").unlink()
    (tmp_path / "later").mkdir()
    await eventually(lambda: reporter.counts == Counts(kept=2), within=20)
    reporter.close()

    assert waiting == Counts(waiting=2)
    failed = [event for event in events if isinstance(event, FilingFailed)]
    assert {(one.message_id, one.what, one.waits) for one in failed} == {
        ("t-1", "death", True),
        ("t-2", "death", True),
    }
    assert filed_later == ["t-1"]
    assert letters(url) == ["t-1", "t-2"]


def test_reports_that_still_wait_at_the_end_are_counted_as_lost(tmp_path: Path, url: str) -> None:
    events: list[Event] = []
    (tmp_path / "later").touch()
    reporter = Reporter(url, observe=events.append)

    reporter.died(found("t-1"))
    reporter.close()

    assert reporter.counts == Counts(lost=1)
    last = events[-1]
    assert isinstance(last, FilingFailed)
    assert (last.message_id, last.waits) == ("t-1", False)


def test_forked_processes_file_in_an_office_that_they_open_themselves(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/office.db"
    reporter = Reporter(url, observe=lambda event: None)
    assert reporter.died(found("t-0"))

    for number in (1, 2):
        with warnings.catch_warnings(action="ignore"):  # whoever forks has threads
            child = os.fork()
        if not child:
            is_kept = reporter.died(found(f"t-{number}")) and reporter.counts == Counts(kept=1)
            os._exit(0 if is_kept else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert reporter.died(found("t-3"))
    reporter.close()

    assert letters(url) == ["t-0", "t-1", "t-2", "t-3"]


def test_the_same_task_is_the_same_letter(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/office.db"
    reporter = Reporter(url, observe=lambda event: None)

    assert reporter.died(found("t-1"))
    assert reporter.died(found("t-1"))
    reporter.close()

    assert letters(url) == ["t-1"]


def test_errors_of_observers_stay_their_own(tmp_path: Path, url: str) -> None:
    def broken(event: Event) -> None:
        raise ValueError("an observer may do anything")

    (tmp_path / "later").touch()
    reporter = Reporter(url, observe=broken)

    assert not reporter.died(found("t-1"))
    reporter.close()

    assert reporter.counts == Counts(lost=1)


def test_an_app_has_one_installation() -> None:
    app = Celery("shop", broker="redis://localhost/0")
    install(app, "sqlite:///office.db")

    with pytest.raises(ConfigError, match="installed in this app already"):
        install(app, "sqlite:///office.db")


def test_installing_opens_nothing(tmp_path: Path) -> None:
    install(Celery("shop", broker="redis://localhost/0"), f"sqlite:///{tmp_path}/office.db")

    assert list(tmp_path.iterdir()) == []


def test_wrong_urls_are_refused_where_they_are_written() -> None:
    with pytest.raises(ConfigError, match="sqlit"):
        install(Celery("shop"), "sqlit:///office.db")
