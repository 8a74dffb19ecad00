"""dlq replay and its campaigns."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from deadletter.core.campaign import Outcome
from deadletter.core.letter import State
from deadletter.ports import LedgerKey, LedgerState, ReplaySettled
from office.making import NOW, make_letter, make_letters


def received(dlq: Command, mailbox: str = "orders") -> list[Any]:
    return list(
        dlq.do(lambda engine: engine.broker.source(mailbox).receive(limit=10_000, wait=0, lease=60))
    )


def confirm(dlq: Command, outcome: Outcome = Outcome.CONFIRMED) -> None:
    lineages = [one.message.lineage for one in received(dlq)]
    news = [ReplaySettled(one.letter_id, one.generation, outcome) for one in lineages]
    dlq.do(lambda engine: engine.letters.settle_replays(news))


def test_one_letter_is_sent_back(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)

    ran = dlq("replay", letter.id[:8], "--reason", "bank is back", "--actor", "anna")

    assert ran.code == 0, ran.err
    assert "1  sent, no outcome yet" in ran.out
    (delivery,) = received(dlq)
    assert delivery.message.body == letter.message.body
    assert delivery.message.lineage.letter_id == letter.id


def test_letters_are_sent_back_by_a_search(dlq: Command) -> None:
    dlq.keep(*make_letters(5), make_letter(9, state=State.CLOSED))

    ran = dlq("replay", "is:pending", "--limit", "3", "--json")

    assert ran.document["counts"] == {"sent": 3}
    assert ran.document["query"] == "is:pending"
    assert len(received(dlq)) == 3


def test_redrive_is_another_word_for_it(dlq: Command) -> None:
    dlq.keep(*make_letters(2))

    assert dlq("redrive", "message:m-2", "--json").document["counts"] == {"sent": 1}


def test_letters_that_wait_for_an_outcome_are_sent_again_if_somebody_agrees(dlq: Command) -> None:
    stuck, other = make_letters(2)
    dlq.keep(stuck, other)
    dlq("replay", stuck.id)

    plan = dlq("replay", "plan", "*")
    asked = dlq("replay", "source:orders", "--unconfirmed")
    ran = dlq("replay", "source:orders", "--unconfirmed", "--yes")

    assert "1 letter waits for the outcome of an earlier replay" in plan.err
    assert asked.code == 2, "a question nobody answers needs --yes"
    assert ran.code == 0, ran.err
    assert "1 letter reopened." in ran.out
    assert "2  sent, no outcome yet" in ran.out
    copies = [one.message.lineage for one in received(dlq)]
    assert sorted((one.letter_id, one.generation) for one in copies) == sorted(
        [(stuck.id, 1), (stuck.id, 2), (other.id, 1)]
    )
    (first, second) = dlq.do(lambda engine: engine.letters.replays([stuck.id]))
    assert (first.outcome, second.outcome) == (Outcome.UNCONFIRMED, Outcome.SENT)


def test_a_letter_that_waits_is_sent_again_by_its_id(dlq: Command) -> None:
    (stuck,) = make_letters(1)
    dlq.keep(stuck)
    dlq("replay", stuck.id)

    assert dlq("replay", stuck.id, "--yes").code == 4
    assert dlq("replay", stuck.id, "--yes", "--unconfirmed").code == 0


@pytest.mark.parametrize("words", [["replay", "--dry-run"], ["replay", "plan"]])
def test_a_plan_sends_nothing(dlq: Command, words: list[str]) -> None:
    dlq.keep(
        make_letter(1),
        make_letter(2, state=State.CLOSED),
        make_letter(3, replays=9),
        make_letter(4, key="k"),
    )

    ran = dlq(*words, "*")
    plan = dlq(*words, "*", "--json").document

    assert ran.code == 0
    assert "2 letters would be sent to orders (2)" in ran.out
    assert plan["sendable"] == 2
    assert plan["verdicts"]["past-cap"] == 1
    assert plan["verdicts"]["wrong-state"] == 1
    assert received(dlq) == []
    assert dlq("replay", "status", "--json").documents == []


def test_nothing_that_can_be_sent_is_a_conflict(dlq: Command) -> None:
    dlq.keep(make_letter(state=State.CLOSED))

    ran = dlq("replay", "*")

    assert ran.code == 4
    assert "none of these letters can be sent" in ran.err


def test_another_mailbox_can_be_named(dlq: Command) -> None:
    dlq.keep(make_letter())

    dlq("replay", "*", "--to", "orders.fixed")

    assert len(received(dlq, "orders.fixed")) == 1


def test_many_letters_are_not_sent_without_yes(dlq: Command) -> None:
    dlq.keep(*make_letters(101))

    refused = dlq("replay", "*")
    sent = dlq("replay", "*", "--yes", "--json")

    assert refused.code == 2
    assert "this would send 101 letters to orders: add --yes" in refused.err
    assert sent.document["counts"] == {"sent": 101}


def test_a_person_types_how_many(dlq: Command, person: Callable[[str], None]) -> None:
    dlq.keep(*make_letters(101))
    person("101")

    ran = dlq("replay", "*")

    assert ran.code == 0
    assert "Type 101 to continue" in ran.err


def test_expired_letters_are_not_sent_without_yes(dlq: Command) -> None:
    dlq.keep(make_letter(expires_at=NOW - timedelta(days=4000)))

    refused = dlq("replay", "*")
    sent = dlq("replay", "*", "--yes", "--json")

    assert refused.code == 2
    assert "1  expired: they will be sent without their expiry" in refused.out
    assert "add --yes" in refused.err
    assert sent.document["counts"] == {"sent": 1}
    (copy,) = received(dlq)
    assert copy.message.expires_at is None


def test_processed_letters_are_sent_only_if_included(dlq: Command) -> None:
    dlq.keep(make_letter(idempotency_key="done"))
    dlq.do(_processed)

    refused = dlq("replay", "*", "--yes")
    named = dlq("replay", "*", "--include", "already-processed")

    assert refused.code == 4
    assert "1  not sent: already processed" in refused.out
    assert named.code == 0
    assert "1  sent, no outcome yet" in named.out


def test_a_verdict_can_be_skipped(dlq: Command) -> None:
    late = make_letter(2, expires_at=NOW - timedelta(days=9_999))
    dlq.keep(make_letter(1), late)

    plan = dlq("replay", "plan", "*", "--skip", "expired", "--json").document

    assert (plan["sendable"], plan["left_out"]) == (1, ["expired"])
    assert dlq("replay", "*", "--skip", "expired").code == 0
    assert dlq.do(lambda engine: engine.letters.get([late.id]))[0].head.replays == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--include", "wrong-state"], "never sent"),
        (["--include", "expired", "--skip", "expired"], "name it once"),
    ],
)
def test_verdicts_that_make_no_sense_are_refused(dlq: Command, words: list[str], said: str) -> None:
    ran = dlq("replay", "*", *words)

    assert ran.code == 2
    assert said in ran.err


def test_the_limit_counts_letters_that_are_sent(dlq: Command) -> None:
    dlq.keep(*make_letters(6))
    for _ in range(2):
        assert dlq("replay", "*", "--limit", "2").code == 0

    states = [one.state for one in dlq.do(lambda e: e.letters.find()).heads]

    assert states.count(State.REPLAYING) == 4


def test_letters_of_a_key_wait_for_the_one_before_them(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.cli.replay.KEY_PATIENCE", 0.1)
    dlq.keep(*(make_letter(n, key="customer-7") for n in range(3)))

    ran = dlq("replay", "*")

    assert ran.code == 6
    assert "1  sent, no outcome yet" in ran.out
    assert "2  waiting for an earlier letter of their key" in ran.out
    assert "2 wait for the letter before them of their key" in ran.out
    assert "dlq replay resume" in ran.err


def test_without_key_order_all_letters_of_a_key_go(dlq: Command) -> None:
    dlq.keep(*(make_letter(n, key="customer-7") for n in range(3)))

    ran = dlq("replay", "*", "--no-key-order")

    assert ran.code == 0
    assert "3  sent, no outcome yet" in ran.out


async def _processed(engine: Any) -> None:
    (claim,) = await engine.ledger.begin([LedgerKey("orders", "done")], lease=60)
    await engine.ledger.finish([(claim, LedgerState.PROCESSED)], ttl=600)


def test_outcomes_are_waited_for(dlq: Command) -> None:
    dlq.keep(make_letter())

    ran = dlq("replay", "*", "--wait", "0.3")

    assert ran.code == 6
    assert "1  sent, no outcome yet" in ran.out
    assert "Some letters have no outcome after 300 ms" in ran.err


def test_a_replay_is_reported(dlq: Command) -> None:
    dlq.keep(make_letter())
    campaign = dlq("replay", "*", "--json").document["id"]
    confirm(dlq)

    report = dlq("replay", "report", campaign)
    status = dlq("replay", "status")

    assert "1  handled" in report.out
    assert "done" in status.out
    assert dlq("replay", "status", campaign, "--json").document["counts"] == {"confirmed": 1}


def test_a_replay_is_planned_now_and_sent_later(dlq: Command) -> None:
    dlq.keep(*make_letters(3))
    campaign = dlq("replay", "start", "*", "--json").document
    assert campaign["state"] == "planned"
    assert received(dlq) == []

    ran = dlq("replay", "resume", campaign["id"], "--json")

    assert ran.document["counts"] == {"sent": 3}
    assert dlq("replay", "resume", campaign["id"]).code == 4


def test_a_plan_of_another_size_than_expected_is_refused(dlq: Command) -> None:
    dlq.keep(*make_letters(3))

    ran = dlq("replay", "start", "*", "--expect", "2")

    assert ran.code == 4
    assert "3 letters match now, not 2" in ran.err


def test_a_replay_is_paused_and_cancelled(dlq: Command) -> None:
    dlq.keep(make_letter())
    campaign = dlq("replay", "start", "*", "--json").document["id"]

    assert dlq("replay", "pause", campaign).code == 0
    assert dlq("replay", "cancel", campaign, "--reason", "no").code == 0
    assert "cancelled" in dlq("replay", "status").out
    assert dlq("replay", "pause", campaign).code == 4


def test_no_such_replay_is_exit_code_3(dlq: Command) -> None:
    dlq.keep(make_letter())

    assert dlq("replay", "status", "nothing").code == 3
    assert "Nothing has been replayed yet" in dlq("replay", "status").out


def test_an_interrupt_pauses_and_says_how_to_go_on(dlq: Command) -> None:
    dlq.keep(*make_letters(100))
    running = subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", "replay", "*", "--rate", "20"],
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 20
    while not dlq.do(lambda engine: engine.letters.campaigns()):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)

    assert running.returncode == 130
    found = re.search(r"dlq replay resume (\S+)", err)
    assert found is not None
    ran = dlq("replay", "resume", found[1], "--json", "--rate", "10000")
    assert ran.document["counts"] == {"sent": 100}
    ids = [one.message.id for one in received(dlq)]
    assert len(ids) == len(set(ids)) == 100


def test_a_killed_replay_is_taken_over(dlq: Command) -> None:
    dlq.keep(*make_letters(3))
    campaign = dlq.do(_begun)

    refused = dlq("replay", "resume", campaign)
    ran = dlq("replay", "resume", campaign, "--take-over", "--json")

    assert refused.code == 4
    assert "--take-over" in refused.err
    assert ran.document["counts"] == {"sent": 3}


def test_a_replay_of_many_named_letters_says_how_many_it_does_not_name(dlq: Command) -> None:
    letters = make_letters(25)
    dlq.keep(*letters)

    ran = dlq("replay", *(one.id for one in letters), "--json")

    assert ran.document["query"].endswith(f" {letters[19].id} and 5 more")


async def _begun(engine: Any) -> str:
    """A campaign whose process died after it had taken some letters."""
    from deadletter.office.replay import Replay
    from deadletter.system import SystemClock, SystemDice
    from office.making import BY

    replay = Replay(engine.letters, engine.broker, SystemClock(), SystemDice())
    campaign = await replay.start("*", BY)
    await engine.letters.take_replay(campaign.id, limit=2)
    return campaign.id


def test_the_story_of_a_letter_tells_of_its_replays(dlq: Command) -> None:
    letter = make_letter()
    dlq.keep(letter)
    who = ("--actor", "anna", "--reason", "bank is back")
    campaign = dlq("replay", letter.id, *who, "--json").document["id"]
    waiting = dlq("show", letter.id).out
    confirm(dlq, Outcome.FAILED)
    dlq("replay", letter.id)
    confirm(dlq)

    text = " ".join(dlq("show", letter.id).out.split())
    story = dlq("show", letter.id, "--json").document["story"]

    sent = "anna sent it back to orders, because: bank is back"
    assert f"{sent} (replay 1, {campaign}) " in text
    assert "sent, no outcome yet" in " ".join(waiting.split())
    assert text.index("replay 1 failed again") < text.index("(replay 2,")
    assert text.index("(replay 2,") < text.index("replay 2 handled")
    told = [one["replay"] for one in story if one["kind"] in {"replay", "outcome"}]
    assert [(one["generation"], one["outcome"]) for one in told] == [
        (1, "failed"),
        (1, "failed"),
        (2, "confirmed"),
        (2, "confirmed"),
    ]
    assert told[0]["campaign"] == campaign
    assert told[0]["taken_at"] <= told[0]["sent_at"] <= told[0]["settled_at"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_replays_are_listed_page_by_page(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    monkeypatch.setattr("deadletter.cli.ui.PAGE", 2)
    letters = make_letters(5)
    dlq.keep(*letters)
    ids = [dlq("replay", "start", letter.id, "--json").document["id"] for letter in letters]
    latest = [one[:13] for one in reversed(ids)]

    everything = dlq("replay", "status", *form)
    cut = dlq("replay", "status", *form, "-n", "3")
    rest = dlq(*shlex.split(cut.err.removeprefix("There is more: dlq ")))

    for ran, expected in ((everything, latest), (cut, latest[:3]), (rest, latest[3:])):
        assert re.findall(r"^[^ ]*?(\w{8}-\w{4})", ran.out, re.MULTILINE) == expected
    assert everything.err == rest.err == ""


def test_a_plan_lists_each_letter_with_its_verdict(dlq: Command) -> None:
    ready, closed = make_letter(1), make_letter(2, state=State.CLOSED)
    dlq.keep(ready, closed)
    dlq("queues", "create", "orders")

    ran = dlq("replay", "plan", "*", "--letters")
    lines = dlq("replay", "plan", "*", "--letters", "--json").documents

    assert ran.code == 0
    assert re.search(rf"{ready.id[:10]}\S* +ready +orders", ran.out)
    assert re.search(rf"{closed.id[:10]}\S* +wrong-state", ran.out)
    assert "1 letter would be sent to orders (1)." in ran.out
    assert {line["letter_id"]: line["verdict"] for line in lines} == {
        ready.id: "ready",
        closed.id: "wrong-state",
    }


_SHOP = """
import msgspec
from deadletter import App

app = App("sqlite:///office.db")

class Order(msgspec.Struct):
    id: int

@app.handler("orders")
async def charge(order: Order) -> None: ...
"""


def test_a_plan_reads_bodies_as_the_handlers_would(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_plan.py").write_text(_SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    good = make_letter(1, body=b'{"id": 1}')
    bad = make_letter(2, body=b'{"id": "one"}')
    other = make_letter(3, source="mails", body=b"?")
    dlq.keep(good, bad, other)

    unknown = dlq("replay", "plan", "*", "--json").document
    monkeypatch.setenv("DLQ_APP", "shop_of_plan:app")
    known = dlq("replay", "plan", "*", "--json").document
    skipped = dlq("replay", "source:orders", "--dry-run")
    included = dlq("replay", "source:orders", "--include", "unreadable", "--dry-run")
    monkeypatch.setenv("DLQ_APP", "no_such_shop:app")
    missing = dlq("replay", "plan", "source:orders")

    assert "unreadable" not in unknown["verdicts"]
    assert known["samples"]["unreadable"] == [bad.id]
    assert known["verdicts"]["unreadable"] == 1
    assert "1 letter would be sent to orders (1)." in skipped.out
    assert "2 letters would be sent to orders (2)." in included.out
    assert missing.code == 0
    assert "Bodies are not checked against handlers: there is no module" in missing.err
