"""Tasks of Celery, Dramatiq and RQ: what their letters say, and what they do not."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from core.dialect_rig import THEN, read, said
from deadletter.core.letter import DeadLetter

HEADERS = {"task": "shop.charge", "id": "t-1", "root_id": "t-1", "retries": "0"}
BODY = b'[["o-1"], {"gift": true}, {"callbacks": null}]'
FAILURE = {
    "status": "FAILURE",
    "result": {"exc_type": "ValueError", "exc_message": ["no price"], "exc_module": "builtins"},
    "traceback": "Traceback …\nValueError: no price\n",
    "date_done": "2026-05-01T00:00:00+00:00",
}


def task(**more: Any) -> DeadLetter:
    """A task that lay in a list on Redis."""
    headers = HEADERS | more.pop("headers", {})
    about = {"delivery_tag": "d-1"} | more.pop("about", {})
    basics = {"kind": "celery", "place": "celery:dead", "body": BODY, "about": about}
    return read(headers=headers, **(basics | more))


def message(options: dict[str, Any], **about: str) -> DeadLetter:
    """A message that lay in a dead queue of Dramatiq."""
    body = {
        "queue_name": "shop",
        "actor_name": "charge",
        "args": ["o-1"],
        "kwargs": {},
        "options": options,
        "message_id": "m-1",
        "message_timestamp": int(THEN.timestamp() * 1000),
    }
    place = {"kind": "dramatiq", "place": "dramatiq:shop", "source": "shop"}
    return read(body=json.dumps(body).encode(), about=about, **place)


def job(**about: str) -> DeadLetter:
    """A job that lay in a failed registry of RQ."""
    place = {"kind": "rq", "place": "rq:shop", "source": "shop"}
    return read(about={"description": "shop.charge('o-1')", **about}, **place)


@pytest.mark.parametrize(
    ("letter", "attempts"),
    [
        (task(), 0),  # no worker may ever have taken it
        (task(headers={"retries": "2"}), 3),
        (task(about={"result": json.dumps(FAILURE)}), 1),
        (task(kind="rabbitmq", place="shop.dead"), 1),  # the worker rejected it
        (message({}), 0),  # too old to be run, perhaps
        (message({"retries": 1}), 2),
        (job(), 1),
        (job(retries_left="0"), 0),  # of how many, nobody says
    ],
)
def test_attempts_are_unknown_where_nobody_counts_them(letter: DeadLetter, attempts: int) -> None:
    assert letter.head.attempts == attempts


def test_the_error_of_a_task_comes_from_the_result_backend() -> None:
    letter = task(about={"result": json.dumps(FAILURE)})

    head = letter.head
    assert (head.error_type, head.error_text) == ("ValueError", "no price")
    assert head.dead_at == datetime(2026, 5, 1, tzinfo=UTC)
    assert "Traceback" in letter.story()[0].stack


@pytest.mark.parametrize(
    "result", ["", "\x80\x05pickled", "[]", '{"status": "SUCCESS", "result": 3}']
)
def test_results_that_tell_no_error_are_passed_over(result: str) -> None:
    assert task(about={"result": result}).head.error_type == ""


def test_task_and_arguments_are_fields() -> None:
    assert said(task()) == {"task": "shop.charge", "args": '["o-1"]', "kwargs": '{"gift":true}'}
    assert said(message({}))["actor"] == "charge"
    assert said(job())["call"] == "shop.charge('o-1')"


def test_secrets_in_arguments_are_masked() -> None:
    body = b'[["password=hunter2-hunter2"], {}, {}]'

    assert "hunter2" not in said(task(body=body))["args"]


def test_letters_are_grouped_by_task_and_error() -> None:
    charge, mail = task(), task(headers={"task": "shop.mail"})

    assert charge.head.fingerprint != mail.head.fingerprint
    other = task(headers={"id": "t-2", "root_id": "t-2"})
    assert charge.head.fingerprint == other.head.fingerprint


def test_each_delivery_is_a_death_of_its_own() -> None:
    again = task(about={"delivery_tag": "d-2"})

    assert task().history == task().history
    assert task().history != again.history


def test_times_after_which_a_framework_refuses_are_expiries() -> None:
    assert task(headers={"expires": THEN.isoformat()}).message.expires_at == THEN
    assert message({"max_age": 0}).message.expires_at is None
    expiry = message({"max_age": 1500}).message.expires_at
    assert expiry is not None
    assert (expiry - THEN).total_seconds() == 1.5
