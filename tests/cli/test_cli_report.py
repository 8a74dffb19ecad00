"""dlq replay report: every letter of a replay, with its outcome."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.conftest import Command, RemoteCommand
from deadletter.core.campaign import Outcome
from deadletter.core.letter import DeadLetter
from deadletter.ports import ReplaySettled
from office.making import make_letter, make_letters


@pytest.fixture
def letters(dlq: Command) -> list[DeadLetter]:
    now = datetime.now(UTC)
    letters = [*make_letters(3, now=now), make_letter(4, source="returns", now=now)]
    dlq.keep(*letters)
    return letters


@pytest.fixture
def replay(dlq: Command, letters: list[DeadLetter]) -> str:
    """A replay of four letters: two failed again, one was handled, one has no outcome."""
    campaign = dlq("replay", "*", "--json").document["id"]
    first, second, third, _ = letters
    settle(dlq, first, Outcome.FAILED)
    settle(dlq, second, Outcome.CONFIRMED)
    settle(dlq, third, Outcome.FAILED)
    return str(campaign)


def settle(dlq: Command, letter: DeadLetter, outcome: Outcome) -> None:
    news = [ReplaySettled(letter.id, 1, outcome)]
    dlq.do(lambda engine: engine.letters.settle_replays(news))


def without_ages(table: str) -> str:
    """Return a table without what changes within a second."""
    return re.sub(r"\b(now|\d+ s ago)\b *", "", table)


def outcomes(documents: list[Any]) -> dict[str, str]:
    return {one["letter_id"]: one["outcome"] for one in documents}


def test_a_report_names_each_letter_and_its_outcome(
    dlq: Command, letters: list[DeadLetter], replay: str
) -> None:
    ran = dlq("replay", "report", replay[:20])

    assert ran.code == 0
    assert "2  failed again" in ran.out
    for letter, said in zip(
        letters, ("failed again", "handled", "failed again", "sent"), strict=True
    ):
        (line,) = re.findall(rf"^{letter.id[:10]} .*", ran.out, re.MULTILINE)
        assert f" {said} " in line
        assert letter.head.source in line
        assert "TimeoutError: the bank did not answer" in line


def test_in_json_each_letter_is_a_line(
    dlq: Command, letters: list[DeadLetter], replay: str
) -> None:
    found = dlq("replay", "report", replay, "--json").documents
    failed = dlq("replay", "report", replay, "--json", "--outcome", "failed").documents

    became = ("failed", "confirmed", "failed", "sent")
    ids = [letter.id for letter in letters]
    assert outcomes(found) == dict(zip(ids, became, strict=True))
    assert outcomes(failed) == {letters[0].id: "failed", letters[2].id: "failed"}
    assert {one["generation"] for one in found} == {1}


def test_only_some_are_told_of(dlq: Command, letters: list[DeadLetter], replay: str) -> None:
    handled = dlq("replay", "report", replay, "--outcome", "confirmed").out
    skipped = dlq("replay", "report", replay, "--outcome", "skipped").out
    wrong = dlq("replay", "report", replay, "--outcome", "lost")

    assert letters[1].id[:10] in handled
    assert letters[0].id[:10] not in handled
    assert "No letter of this replay has the outcome skipped." in skipped
    assert wrong.code == 2
    assert "confirmed" in wrong.err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_report_is_read_page_by_page(dlq: Command, form: list[str]) -> None:
    letters = make_letters(230)  # of which a store gives 100 at once
    dlq.keep(*letters)
    campaign = dlq("replay", "*", "--yes", "--json").document["id"]

    ran = dlq("replay", "report", campaign, *form)

    key = '"letter_id":"' if form else ""
    found = re.findall(rf"^{{?{key}([a-z2-7]{{10}})", ran.out, re.MULTILINE)
    assert found == [letter.id[:10] for letter in reversed(letters)]  # oldest first
    assert ran.out.count("outcome  ") == (0 if form else 1)
    if not form:  # one page stands under the other
        *_, header = (one for one in ran.out.splitlines() if one.startswith("letter"))
        rows = ran.out.splitlines()[-len(letters) :]
        assert {row.index("orders") for row in rows} == {header.index("source")}


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_report_fits_the_terminal(
    dlq: Command, replay: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    lines = dlq("replay", "report", replay).out.splitlines()

    assert max(map(len, lines)) <= width
    assert sum("failed again " in line for line in lines) >= 2


def test_letters_that_are_gone_are_counted(
    dlq: Command, letters: list[DeadLetter], replay: str
) -> None:
    dlq("purge", letters[0].id, "--yes", "--reason", "asked for")

    ran = dlq("replay", "report", replay)

    assert letters[0].id[:10] not in ran.out
    assert "1 letter purged since, not listed." in ran.out


@pytest.mark.slow
def test_a_report_through_a_server_is_the_same(
    dlq: Command, remote: RemoteCommand, replay: str
) -> None:
    for form in ((), ("--json",), ("--outcome", "failed")):
        here = dlq("replay", "report", replay, *form)
        asked = remote("replay", "report", replay, *form)
        assert (here.code, bool(here.out)) == (0, True)
        assert untimed(asked.out) == untimed(here.out)


def untimed(text: str) -> str:
    """Return a text without relative times."""
    return re.sub(r"(now|\d+ s ago) *", "", text)


def test_a_report_says_what_failed_again_after_it_was_confirmed(
    dlq: Command, remote: RemoteCommand, letters: list[DeadLetter], replay: str
) -> None:
    before = dlq("replay", "report", replay)
    settle(dlq, letters[1], Outcome.FAILED)

    after = dlq("replay", "report", replay)
    asked = remote("replay", "report", replay)
    (late,) = (
        one
        for one in dlq("replay", "report", replay, "--json").documents
        if one["confirmed_at"] is not None
    )
    counts = dlq("replay", "status", replay, "--json").document["counts"]

    assert (before.code, after.code, asked.code) == (0, 6, 6)
    assert "1  handled" in before.out
    assert "handled" not in after.out
    assert "1 letter was confirmed, then failed again, at 20" in after.out
    assert without_ages(asked.out) == without_ages(after.out)
    assert late["letter_id"] == letters[1].id
    assert late["outcome"] == "failed"
    assert late["settled_at"] > late["confirmed_at"]
    assert counts == {"failed": 3, "sent": 1}


def test_a_story_tells_of_a_letter_that_was_confirmed_and_failed_again(
    dlq: Command, letters: list[DeadLetter], replay: str
) -> None:
    settle(dlq, letters[1], Outcome.FAILED)

    told = dlq("show", letters[1].id).out

    handled, failed = (told.index("replay 1 handled"), told.index("replay 1 failed again"))
    assert handled < failed
