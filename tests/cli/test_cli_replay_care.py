"""dlq replay --canary, --ramp, --halt-on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.conftest import Command
from cli.test_cli_replay import confirm
from client.serving import served
from deadletter.core.access import Role
from deadletter.core.campaign import Campaign, Outcome
from deadletter.office.replay import Replay
from office.making import make_letters


def careful(dlq: Command, *words: str, outcome: Outcome) -> tuple[int, str, str]:
    """Run a replay in a process of its own, beside a consumer that does this."""
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
    }


def test_a_ramp_goes_to_the_end_when_all_is_well(dlq: Command) -> None:
    dlq.keep(*make_letters(15))

    code, out, _ = careful(
        dlq, "*", "--ramp", "--wait", "20", outcome=Outcome.CONFIRMED
    )

    assert code == 0
    assert "15  handled" in out


def test_who_paused_it_and_why_is_told(dlq: Command) -> None:
    dlq.keep(*make_letters(2))
    planned = dlq("replay", "start", "*", "--canary", "1", "--json").document
    dlq("replay", "pause", planned["id"], "--reason", "lunch", "--actor", "anna")

    told = dlq("replay", "status", planned["id"])

    assert "Paused by anna: lunch." in told.out
    assert planned["care"]["canary"] == 1


@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (["--halt-on", "some"], "20% or 0.2, or the word never"),
        (["--halt-on", "120%"], "not '120%'"),
        (["--halt-on", "nan"], "20% or 0.2"),
        (["--canary", "0"], "canary"),
        (["--rate", "inf"], "rate"),
        (["--rate", "nan"], "rate"),
        (["--cap", "99999999999999999999"], "cap"),
        (["--ramp", "--through", "redis://localhost:1"], "wait for ever"),
    ],
)
def test_what_makes_no_sense_is_refused(
    dlq: Command, words: Sequence[str], help_: str
) -> None:
    dlq.keep(*make_letters(2))

    ran = dlq("replay", "*", *words)

    assert ran.code == 2
    assert help_ in " ".join(ran.err.split())
    assert not dlq.do(lambda engine: engine.letters.campaigns())


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.FAILED, 6), (Outcome.CONFIRMED, 0)]
)
def test_a_script_is_told_how_it_went(
    dlq: Command, outcome: Outcome, code: int
) -> None:
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


def test_that_nobody_seems_to_work_is_told(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deadletter.cli.caring._LONG", 0.5)
    monkeypatch.setattr("deadletter.office.watch.PATIENCE", 2.0)
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


def test_what_was_planned_with_a_canary_is_not_resumed_through_others(
    dlq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def opened(office: Any, url: str, desk: Any) -> AsyncIterator[Any]:
        yield office

    monkeypatch.setattr("deadletter.cli.replay.way_back", opened)
    dlq.keep(*make_letters(2))
    planned = dlq("replay", "start", "*", "--canary", "1", "--json").document

    ran = dlq("replay", "resume", planned["id"], "--through", "redis://localhost")

    assert ran.code == 2
    assert "wait for ever" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("said", "share"), [("20%", 0.2), ("0.2", 0.2), ("never", 1.0), ("0", 0.0)]
)
def test_a_share_is_said_in_several_ways(dlq: Command, said: str, share: float) -> None:
    dlq.keep(*make_letters(2))

    planned = dlq("replay", "start", "*", "--halt-on", said, "--json").document

    assert planned["care"]["halt_on"] == share
