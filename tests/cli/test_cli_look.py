"""dlq, dlq list, groups, show, stats: reading changes nothing."""

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.conftest import Command
from deadletter.cli.desk import Desk
from deadletter.cli.letters import list_
from deadletter.core.attempts import Attempt, append
from deadletter.core.letter import DeadLetter, State
from deadletter.core.query import Budget, Meter
from deadletter.core.query.fields import FIELDS
from deadletter.office.batches import Patience
from deadletter.office.letters import Letters
from deadletter.system import SystemClock
from office.making import make_letter, make_letters


def recent(number: int = 1, **different: Any) -> DeadLetter:
    return make_letter(number, now=datetime.now(UTC), **different)


def two_hours_later(monkeypatch: pytest.MonkeyPatch) -> None:
    later = datetime.now(UTC) + timedelta(hours=2, minutes=1)
    monkeypatch.setattr(SystemClock, "now", lambda self: later)


def test_a_list_shows_what_broke(dlq: Command) -> None:
    letter = recent()
    dlq.keep(letter, recent(2, state=State.CLOSED, source="payments"))

    ran = dlq("list")

    assert ran.code == 0
    assert letter.id[:10] in ran.out
    assert "TimeoutError: the bank did not answ" in ran.out  # 100 columns cut it
    assert "3 min ago" in ran.out
    assert "closed" in ran.out


def test_a_list_is_searched(dlq: Command) -> None:
    dlq.keep(recent(1), recent(2, source="payments"))

    ran = dlq("list", "source:payments", "is:pending", "--json")

    assert [one["message_id"] for one in ran.documents] == ["m-2"]
    assert ran.documents[0]["category"] == "RETRYABLE"


def test_a_list_that_gave_up_says_how_far_it_looked(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = partial(Meter, budget=Budget(opened=2))
    monkeypatch.setattr("deadletter.stores.sqlite.letters.Meter", budget)
    monkeypatch.setattr(
        "deadletter.office.letters.Letters.search",
        partialmethod(Letters.search, patience=Patience(seconds=0.0)),
    )
    letters = [recent(n, died=timedelta(minutes=n)) for n in range(1, 6)]
    dlq.keep(*letters)

    ran = dlq("list", "body.order:>1000")

    at = f"{letters[1].head.dead_at:%Y-%m-%d %H:%M:%S} UTC"
    assert f"Looked at 2 of 5 letters, back to {at}." in ran.err
    assert "--after" in ran.err


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_tables_fit_the_terminal(dlq: Command, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    dlq.keep(
        *make_letters(3, error_text="x" * 300, now=datetime.now(UTC)),
        recent(9, source="a-mailbox-with-a-very-long-name-indeed" * 3),
    )
    dlq.send("a-mailbox-with-a-very-long-name-indeed" * 3, "m-1")

    for words in (["list"], ["groups"], [], ["stats"], ["queues"], ["verify"]):
        ran = dlq(*words)
        assert max(len(line) for line in ran.out.splitlines()) <= width
        assert ran.out.strip()


LONG = "the-orders-of-all-our-shops"


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", [["list"], ["stats"], ["queues"], ["verify"]])
def test_names_that_differ_at_their_ends_can_be_told_apart(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    dlq.keep(recent(1, source=LONG), recent(2, source=f"{LONG}-dlq"))
    dlq.send(LONG, "m-1")
    dlq.send(f"{LONG}-dlq", "m-1")

    ran = dlq(*words)

    assert re.search(r"shops\s", ran.out)
    assert re.search(r"-dlq\s", ran.out)


def test_every_number_is_there_however_narrow_it_is(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    dlq.keep(*(recent(n, state=state) for n, state in enumerate(State)))
    dlq.send(LONG, "m-1")

    ran = dlq("stats")

    assert "…" not in re.sub(r"the\S+", "", ran.out)
    for title in ("ready", "suspects", "failed", *State):
        assert re.search(rf"\b{title}\b", ran.out), title


def test_a_list_in_json_is_all_there_is(dlq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    dlq.keep(*make_letters(60, now=datetime.now(UTC)))
    monkeypatch.setattr("deadletter.cli.ui.PAGE", 7)

    ran = dlq("list", "--json")
    searched = dlq("list", "message:m-1*", "--json")
    rest = dlq("list", "--json", "--after", after_of(dlq, 58))

    assert [one["message_id"] for one in ran.documents] == [f"m-{n}" for n in range(1, 61)]
    assert len(searched.documents) == 11
    assert [one["message_id"] for one in rest.documents] == ["m-59", "m-60"]
    assert ran.err == searched.err == rest.err == ""


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_list_that_is_cut_says_how_to_go_on(dlq: Command, form: list[str]) -> None:
    dlq.keep(*make_letters(5, now=datetime.now(UTC)))

    cut = dlq("list", "is:pending !text:x*", *form, "-n", "3")
    again = shlex.split(cut.err.removeprefix("There is more: dlq "))
    rest = dlq(*again)

    assert cut.err.startswith("There is more: dlq list 'is:pending !text:x*' ")
    assert "-n 3 --after" in cut.err
    assert len(rest.out.splitlines()) == (2 if form else 4)  # a header, the total
    assert rest.err == ""


def test_a_table_without_a_limit_says_that_there_is_more(dlq: Command) -> None:
    dlq.keep(*make_letters(26, now=datetime.now(UTC)))

    ran = dlq("list")

    assert len(ran.out.splitlines()) == 27  # a header, and the total
    assert ran.err == f"There is more: dlq list --after {after_of(dlq, 25)}\n"


def after_of(dlq: Command, count: int) -> str:
    page = dlq.do(lambda engine: engine.letters.find(limit=count))
    return str(page.after)


def test_a_list_goes_on_where_it_ended(dlq: Command) -> None:
    dlq.keep(*make_letters(5, now=datetime.now(UTC)))
    first = dlq.do(lambda engine: engine.letters.find(limit=3))

    ran = dlq("list", "--limit", "3", "--after", first.after, "--json")

    assert [one["message_id"] for one in ran.documents] == ["m-4", "m-5"]


def test_nothing_found_is_said_and_is_no_error(dlq: Command) -> None:
    dlq.keep(recent())

    assert "No letter matches is:closed" in dlq("list", "is:closed").out
    assert dlq("list", "is:closed").code == 0
    assert dlq("list", "is:closed", "--json").out == ""


def test_a_bad_search_points_at_the_token(dlq: Command) -> None:
    dlq.keep(recent())

    ran = dlq("list", "is:pending colour:red")

    assert ran.code == 2
    assert ran.out == ""
    *_, query, pointer = ran.err.splitlines()
    assert query == "  is:pending colour:red"
    assert pointer == "  " + " " * len("is:pending ") + "^"


def test_an_office_that_is_not_there_is_not_made_by_looking(dlq: Command) -> None:
    ran = dlq("list")

    assert ran.code == 3
    assert "there is no office at" in ran.err
    assert dlq("--json") == ran
    assert "dlq send" in dlq().out
    assert dlq("list").code == 3


def test_an_empty_file_is_not_made_an_office_by_looking(dlq: Command, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()

    ran = dlq("--url", f"sqlite:///{empty}", "list")

    assert ran.code == 3
    assert f"there is no office at {empty} yet" in ran.err
    assert empty.stat().st_size == 0


def test_help_names_every_field_of_the_search() -> None:
    assert list_.__doc__ is not None
    named = re.search(r"Fields: (.*?)\.\n", list_.__doc__, re.DOTALL)
    assert named is not None

    fields = {name.strip(" \n") for name in named[1].split(",")}

    assert {name.partition(".")[0] for name in fields} == set(FIELDS)


def test_groups_are_what_broke(dlq: Command) -> None:
    dlq.keep(*make_letters(3, now=datetime.now(UTC)), recent(9, source="payments"))

    ran = dlq("groups")
    as_json = dlq("groups", "--source", "payments", "--json")

    assert "75%" in ran.out
    assert as_json.document["open"] == 1
    assert as_json.document["share"] == 1.0


def test_groups_that_are_done_with_are_shown_on_request(dlq: Command) -> None:
    dlq.keep(recent(state=State.CLOSED))

    assert "No groups with open letters" in dlq("groups").out
    assert "TimeoutError" in dlq("groups", "--all").out


def test_a_letter_tells_its_story(dlq: Command) -> None:
    letter = recent(headers={"tenant": "eu"}, key="customer-7")
    dlq.keep(letter)
    dlq("note", "ask Bo", letter.id, "--actor", "anna")
    dlq("review", letter.id, "--actor", "anna", "--reason", "seen before")

    ran = dlq("show", letter.id[:8])

    assert ran.code == 0
    for part in (
        letter.id,
        "reviewed",
        '"order": 1',
        "tenant: eu",
        "sent to orders",
        "attempt 2 failed after 250 ms: TimeoutError",
        "died: failed 2 of 2 attempts",
        "anna noted: ask Bo",
        "anna reviewed it, because: seen before",
        'File "shop.py", line 7, in charge',
        "dlq replay",
    ):
        assert part in ran.out, part


def test_every_stack_is_shown_on_request(dlq: Command) -> None:
    letter = recent()
    dlq.keep(letter)

    assert dlq("show", letter.id).out.count("Stack of attempt") == 1
    assert dlq("show", letter.id, "--stacks").out.count("Stack of attempt") == 2


def test_secrets_are_masked_until_revealed_and_that_is_audited(dlq: Command) -> None:
    letter = recent(
        headers={"Authorization": "Bearer abcdefgh1234"}, body=b'{"password": "hunter2", "id": 1}'
    )
    dlq.keep(letter)

    masked = dlq("show", letter.id).out + dlq("show", letter.id, "--json").out
    revealed = dlq("show", letter.id, "--reveal", "--actor", "anna").out

    assert "hunter2" not in masked
    assert "abcdefgh1234" not in masked
    assert "hunter2" in revealed
    assert "abcdefgh1234" in revealed
    assert "anna revealed masked values" in dlq("show", letter.id).out


def test_the_body_can_be_had_as_it_is_but_not_on_a_terminal(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = recent(body=b"\x1b[2J\x00\xff")
    dlq.keep(letter)

    piped = subprocess.run(
        [sys.executable, "-m", "deadletter.cli", "show", letter.id, "--raw"],
        capture_output=True,
        check=True,
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    refused = dlq("show", letter.id, "--raw")

    assert piped.stdout == letter.message.body
    assert (refused.code, refused.out) == (2, "")


def test_a_letter_as_json_is_one_document(dlq: Command) -> None:
    letter = recent(headers={"tenant": "eu"})
    dlq.keep(letter)

    shown = dlq("show", letter.id, "--json", "--reveal").document

    assert shown["id"] == letter.id
    assert shown["state"] == "pending"
    assert shown["message"]["headers"] == ["tenant: eu"]
    assert shown["message"]["body"] == "eyJvcmRlciI6IDF9"
    assert [one["kind"] for one in shown["story"]][:2] == ["sent", "received"]


@pytest.mark.parametrize(("name", "said"), [("aaaaaa", "begins with"), ("not-an-id", "not the id")])
def test_no_such_letter_is_exit_code_3(dlq: Command, name: str, said: str) -> None:
    dlq.keep(recent())

    ran = dlq("show", name)

    assert (ran.code, ran.out) == (3, "")
    assert said in ran.err


@pytest.mark.parametrize("command", ["show", "edit"])
def test_too_little_of_an_id_is_a_mistake_of_usage(dlq: Command, command: str) -> None:
    dlq.keep(recent())

    ran = dlq(command, "abc")

    assert (ran.code, ran.out) == (2, "")
    assert "first 6 characters" in ran.err


def test_stats_count_what_is_where(dlq: Command) -> None:
    dlq.keep(recent(1), recent(2, state=State.CLOSED, died=timedelta(hours=3)))
    dlq.send("orders", "a", "b")

    ran = dlq("stats")
    counted = dlq("stats", "--json").document

    assert "1 death in the last hour · 2 deaths in the last day" in ran.out
    assert counted["letters"] == {"pending": 1, "closed": 1}
    assert counted["mailboxes"][0]["ready"] == 2


def test_without_a_command_it_says_what_is_open_and_what_to_type(dlq: Command) -> None:
    dlq.keep(*make_letters(7, now=datetime.now(UTC)))

    ran = dlq()

    assert ran.code == 0
    assert "7 open letters, by cause:" in ran.out
    assert "dlq replay group:" in ran.out
    assert dlq("--json").document["open"] == 7


def test_without_a_command_and_without_letters_none_is_open(dlq: Command) -> None:
    dlq.send("orders", "a")

    ran = dlq()

    assert ran.out.startswith("No open letters.\n")
    assert "1 message waiting" in ran.out
    assert "Is a worker running" not in ran.out, "it was sent just now"


def test_letters_that_wait_for_an_outcome_are_counted_everywhere(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq.keep(*make_letters(3, now=datetime.now(UTC)))
    assert dlq("replay", "source:orders", "--limit", "2").code == 0
    assert dlq("close", "is:pending").code == 0
    two_hours_later(monkeypatch)

    for ran in (dlq(), dlq("stats")):
        assert "2 letters wait for the outcome of a replay" in ran.out
        assert "the oldest for 2 h" in ran.out
    (wait,) = dlq("--json").document["unsettled"]
    assert (wait["source"], wait["letters"]) == ("orders", 2)
    assert dlq("stats", "--json").document["unsettled"] == [wait]
    doctor = dlq("doctor").out
    assert "2 letters wait for the outcome of a replay, the oldest for 2h" in doctor


def test_messages_that_no_worker_takes_are_named(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in ("1", "2"):
        assert dlq("send", "orders", body).code == 0
    two_hours_later(monkeypatch)

    ran, doctor = dlq(), dlq("doctor")

    assert "Is a worker running for orders? 2 messages are ready" in ran.out
    assert "the oldest was sent 2 h ago" in ran.out
    assert dlq("--json").document["unworked"] == ["orders"]
    assert "No worker holds a message of orders (2 ready)" in doctor.out


def test_open_letters_of_snoozed_groups_are_not_called_none(dlq: Command) -> None:
    dlq.keep(*make_letters(2))
    (group,) = dlq("groups", "--json").documents
    dlq("groups", "mute", group["fingerprint"])

    assert "2 open letters in snoozed or muted groups." in dlq().out
    assert "Show snoozed and muted groups with --all" in dlq("groups").out


def test_attempts_of_a_replay_say_so(dlq: Command) -> None:
    letter = recent(replays=1)
    attempt = Attempt(number=1, at=datetime.now(UTC), text="again", generation=1)
    dlq.keep(replace(letter, history=append(letter.history, attempt)))

    assert "replay 1, attempt 1 failed: again" in dlq("show", letter.id).out


def test_hints_are_for_people_only(dlq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    dlq.keep(*make_letters(3, now=datetime.now(UTC)))
    quiet = dlq("list", "is:pending", "-n", "2")
    monkeypatch.setattr(Desk, "is_watched", True)

    watched = dlq("list", "is:pending", "-n", "2")

    assert "story" not in quiet.err
    assert "Show the whole story of a letter" in watched.err


@pytest.mark.parametrize(
    "words", [(), ("list",), ("groups",), ("stats",), ("verify",), ("audit",), ("tokens",)]
)
def test_every_command_names_the_office_it_looks_at(dlq: Command, words: tuple[str, ...]) -> None:
    dlq.keep(make_letter())

    assert dlq(*words).office == dlq.url
    assert dlq(*words, "--json").office == ""


def test_the_name_of_an_office_has_no_password(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLQ_SERVER", "http://anna:secret@127.0.0.1:1")
    monkeypatch.delenv("DLQ_URL", raising=False)

    ran = dlq("list")

    assert ran.office.startswith("on http://")
    assert "secret" not in ran.office + ran.err
