"""dlq replay --canary, --ramp, --halt-on."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from cli.conftest import Command
from cli.test_cli_replay import confirm, received
from client.serving import served
from deadletter.core.access import Role
from deadletter.core.campaign import Campaign, Outcome
from deadletter.core.letter import DeadLetter
from deadletter.office.replay import Replay
from deadletter.ports import ReplaySettled
from office.making import make_letter, make_letters

pytestmark = pytest.mark.slow


def careful(dlq: Command, *words: str, outcome: Outcome) -> tuple[int, str, str]:
    """Run a replay in another process, beside a consumer with this behaviour."""
    running = subprocess.Popen(
        [sys.executable, "-m", "deadletter.cli", "replay", *words],
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while running.poll() is None:
        assert time.monotonic() < deadline
        confirm(dlq, outcome)
        time.sleep(0.05)
    out, err = running.communicate(timeout=20)
    return running.returncode, out, err


def test_a_canary_that_fails_ends_it_and_says_what_to_do(dlq: Command) -> None:
    dlq.keep(*make_letters(12))

    code, out, err = careful(dlq, "*", "--canary", "3", outcome=Outcome.FAILED)

    assert code == 6
    assert "It stopped by itself: " in out
    assert "failed again, where 10% may." in out
    assert "9  not sent yet" in out
    assert "3 letters failed again and are open: " in err
    assert "`dlq replay resume` does not send them again." in err
    assert "Send the rest (9 letters): dlq replay resume" in err
    again = re.search(r"^  dlq (replay( [a-z2-7]{10}){3})$", err, re.MULTILINE)
    assert again is not None
    planned = dlq(*again[1].split(), "--dry-run", "--json").document
    assert planned["verdicts"] == {"ready": 3}
    assert "--outcome failed" in out + err
    assert "dlq replay resume" in out + err
    (campaign,) = dlq.do(lambda engine: engine.letters.campaigns())
    told = dlq("replay", "status", campaign.id)
    assert told.code == 0
    assert "It stopped by itself: " in told.out
    assert dlq("replay", "status", campaign.id, "--json").document["care"] == {
        "canary": 3,
        "ramp": False,
        "halt_on": None,
        "key_order": True,
        "skip": [],
        "include": [],
        "presume_after": None,
    }


def test_a_resumed_replay_names_what_still_needs_one(dlq: Command) -> None:
    dlq.keep(*make_letters(6))
    careful(dlq, "*", "--canary", "2", outcome=Outcome.FAILED)
    (campaign,) = dlq.do(lambda engine: engine.letters.campaigns())
    words = ["resume", campaign.id, "--wait", "20"]

    code, out, err = careful(dlq, *words, outcome=Outcome.CONFIRMED)

    assert code == 6
    assert "4  handled" in out
    assert "2 letters failed again and are open: " in err
    again = re.search(r"^  dlq (replay( [a-z2-7]{10}){2})$", err, re.MULTILINE)
    assert again is not None
    rest = again[1].split()[1:]
    ids = dlq("replay", "report", campaign.id, "--outcome", "failed", "--ids")
    assert [line[:10] for line in ids.out.split()] == rest
    assert "2 letters failed again" in dlq("replay", "status", campaign.id).err

    code, _, err = careful(dlq, *rest, "--wait", "20", outcome=Outcome.CONFIRMED)

    assert (code, err.startswith("Office: "), err.count("\n")) == (0, True, 1)
    assert "still" not in dlq("replay", "status", campaign.id).err


def test_one_failure_among_many_is_told_as_well(dlq: Command) -> None:
    dlq.keep(*make_letters(3))
    dlq("replay", "*")
    (first, *others) = received(dlq)
    news = [
        ReplaySettled(one.message.lineage.letter_id, 1, outcome)
        for one, outcome in [
            (first, Outcome.FAILED),
            *((other, Outcome.CONFIRMED) for other in others),
        ]
    ]
    dlq.do(lambda engine: engine.letters.settle_replays(news))
    (campaign,) = dlq.do(lambda engine: engine.letters.campaigns())

    ran = dlq("replay", "status", campaign.id)

    assert "1 letter failed again and is open: " in ran.err


def test_a_ramp_goes_to_the_end_when_all_is_well(dlq: Command) -> None:
    dlq.keep(*make_letters(15))

    code, out, _ = careful(dlq, "*", "--ramp", "--wait", "20", outcome=Outcome.CONFIRMED)

    assert code == 0
    assert "15  handled" in out


def test_a_paused_replay_shows_who_paused_it_and_why(dlq: Command) -> None:
    dlq.keep(*make_letters(2))
    planned = dlq("replay", "start", "*", "--canary", "1", "--json").document
    dlq("replay", "pause", planned["id"], "--reason", "lunch", "--actor", "anna")

    told = dlq("replay", "status", planned["id"])

    assert "Paused by anna: lunch." in told.out
    assert planned["care"]["canary"] == 1


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (["--halt-on", "some"], "20% or 0.2, or never, got 'some'"),
        (["--halt-on", "120%"], "or never, got '120%'"),
        (["--halt-on", "nan"], "20% or 0.2"),
        (["--canary", "0"], "canary"),
        (["--rate", "inf"], "rate"),
        (["--rate", "nan"], "rate"),
        (["--cap", "99999999999999999999"], "cap"),
        (["--presume", "soon"], "not a duration: 'soon'; write 30s, 5m or 1h30m"),
        (["--presume", "0s"], "must be longer than 0s, or never, got '0s'"),
        (["--through", "shop"], "there is no source named 'shop'"),
    ],
)
def test_invalid_replay_options_are_rejected(
    dlq: Command, words: Sequence[str], help_: str
) -> None:
    dlq.keep(*make_letters(2))

    ran = dlq("replay", "*", *words)

    assert ran.code == 2
    assert help_ in " ".join(ran.err.split())
    assert not dlq.do(lambda engine: engine.letters.campaigns())


@pytest.mark.parametrize(("outcome", "code"), [(Outcome.FAILED, 6), (Outcome.CONFIRMED, 0)])
def test_a_script_is_told_how_it_went(dlq: Command, outcome: Outcome, code: int) -> None:
    dlq.keep(*make_letters(3))

    ended, out, _ = careful(dlq, "*", "--wait", "20", outcome=outcome)

    assert ended == code
    assert ("3  handled" in out) is (code == 0)


def test_an_interrupt_while_outcomes_are_waited_for_tells_the_id(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Replay.wait_confirmed

    async def interrupted(replay: Replay, name: str, **how: Any) -> Campaign:
        signal.raise_signal(signal.SIGINT)
        return await waiting(replay, name, **how)

    monkeypatch.setattr(Replay, "wait_confirmed", interrupted)
    dlq.keep(*make_letters(3))

    ran = dlq("replay", "*", "--wait", "30")

    assert ran.code == 130
    assert "3  sent, no outcome yet" in ran.out


def test_that_nobody_seems_to_work_is_told(dlq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.cli.replay_care._LONG", 0.5)
    monkeypatch.setattr("deadletter.cli.replay.PATIENCE", 2.0)
    dlq.keep(*make_letters(3))

    ran = dlq("replay", "*", "--canary", "1")

    assert ran.code == 6
    assert ran.err.count("is a worker running? Ctrl-C pauses the replay.") == 1


@pytest.mark.parametrize("sources", [(), ("orders",)])
def test_through_a_server_it_stops_and_says_why_as_well(
    dlq: Command, monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...]
) -> None:
    dlq.keep(*make_letters(6))
    with served(dlq.url, access="on") as server:
        monkeypatch.setenv("DLQ_TOKEN", server.token(Role.OPERATOR, *sources))
        words = ["--canary", "2", "--server", server.url]

        code, out, _ = careful(dlq, "source:orders", *words, outcome=Outcome.FAILED)
        (campaign,) = dlq.do(lambda engine: engine.letters.campaigns())
        told = dlq("replay", "status", campaign.id, "--server", server.url)

    assert code == 6
    assert "It stopped by itself: 2 of 2 failed again" in out
    assert told.code == 0
    assert "It stopped by itself: 2 of 2 failed again" in told.out


def test_a_replay_is_resumed_on_the_way_it_was_planned_for(dlq: Command) -> None:
    dlq.keep(*make_letters(2))
    planned = dlq("replay", "start", "*", "--canary", "1", "--json").document

    ran = dlq("replay", "resume", planned["id"], "--through", "redis://localhost")

    assert ran.code == 2
    assert "sends its letters to mailboxes of this engine, not through redis://localhost" in ran.err


@pytest.mark.parametrize(
    ("said", "share"), [("20%", 0.2), ("0.2", 0.2), ("never", 1.0), ("0", 0.0)]
)
def test_a_share_is_said_in_several_ways(dlq: Command, said: str, share: float) -> None:
    dlq.keep(*make_letters(2))

    planned = dlq("replay", "start", "*", "--halt-on", said, "--json").document

    assert planned["care"]["halt_on"] == share


def test_letters_that_nobody_waits_for_are_listed_without_an_outcome(dlq: Command) -> None:
    (letter,) = make_letters(1)
    dlq.keep(letter)
    dlq("replay", letter.id)
    dlq("close", letter.id, "--unconfirmed")

    assert re.search(r" done +0 +1 +0 +0 ", dlq("replay", "status").out)


def test_an_evening_from_causes_to_a_resolved_group(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    yen = [_order(n, "JPY", "builtins.KeyError", "vat_rate") for n in range(14)]
    slow = [_order(n, "EUR", "builtins.TimeoutError", "bank") for n in range(20, 29)]
    noise = [_order(n, "USD", f"shop.Odd{n}", "?") for n in range(40, 42)]
    dlq.keep(*yen, *slow, *noise)
    group, other = yen[0].head.fingerprint, slow[0].head.fingerprint

    first = dlq().out
    shared = dlq("groups", "show", group).out
    query = f"group:{group}"
    planned = dlq("replay", "plan", query).out
    code, out, _ = careful(dlq, query, "--canary", "2", "--wait", "20", outcome=Outcome.CONFIRMED)
    failed, stopped, rest = careful(dlq, f"group:{other}", "--canary", "2", outcome=Outcome.FAILED)
    (halted, _) = dlq.do(lambda engine: engine.letters.campaigns())
    cancelled = dlq("replay", "cancel", halted.id).out
    replays = dlq("replay", "status").out
    resolved = dlq("groups", "resolve", group, "--in", "1.9").out
    last = dlq().out

    assert "25 open letters, by cause:" in first
    assert f"dlq groups show {group}" in first
    assert re.search(r"body.currency +100% +0% +JPY", shared)
    assert "almost always different: body.id" in shared
    assert "14 letters would be sent to orders (14)." in planned
    assert code == 0
    assert "14  handled" in out
    assert (failed, "2  failed again" in stopped) == (6, True)
    assert "2 letters failed again and are open: " in rest
    assert re.search(r"7  not sent *\n", cancelled)
    assert re.search(r"cancelled +0 +0 +0 +2", replays)
    assert f"{group} is resolved in 1.9: KeyError: vat_rate" in resolved
    assert "11 open letters, by cause:" in last
    assert "14 replayed" in last
    assert "KeyError" not in last


def _order(number: int, currency: str, error: str, text: str) -> DeadLetter:
    body = b'{"id": %d, "currency": "%s"}' % (number, currency.encode())
    return make_letter(number, body=body, error_type=error, error_text=text)
