"""Rules in a TOML file, applied by a real worker."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Command

RULES = """
[[rules]]
id = "bank-closed"
trouble = "permanent"
code = "BANK_CLOSED"
names = ["TimeoutError"]
texts = ["bank"]
"""
SHOP = """
from deadletter import App, DLQPolicy, Disposition, Fixed, Trouble

app = App()
retried = DLQPolicy(max_attempts=2, backoff=Fixed(0.01))
failed = DLQPolicy(dispositions={Trouble.PERMANENT: Disposition.FAIL})

@app.handler("orders", policy=retried)
async def charge(order: dict) -> None:
    raise TimeoutError(order["text"])

@app.handler("refunds", policy=failed)
async def refund(order: dict) -> None:
    raise TimeoutError(order["text"])
"""


def test_rules_of_the_settings_are_asked_before_those_of_the_policies(
    dlq: Command, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "closed.toml").write_text(RULES)
    (tmp_path / "deadletter.toml").write_text('rules = "closed.toml"\n')
    for mailbox, text in (("orders", "bank"), ("orders", "post"), ("refunds", "bank")):
        dlq("send", mailbox, f'{{"text": "{text}"}}')

    words = [sys.executable, "-m", "deadletter.cli", "work", "shop:app"]
    worker = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while len(dlq("list", "--json").documents) < 2 or any(
            queue["ready"] + queue["delayed"] + queue["claimed"]
            for queue in dlq("queues", "--json").documents
        ):
            assert time.monotonic() < deadline, "not within 30 seconds"
            time.sleep(0.05)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)

    letters = dlq("list", "--json").documents
    assert {(one["source"], one["code"], one["attempts"]) for one in letters} == {
        ("orders", "BANK_CLOSED", 1),
        ("orders", "TIMEOUT", 2),
    }


@pytest.mark.parametrize("processes", ["1", "2"])
def test_rules_that_cannot_be_read_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dlq: Command, processes: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.setenv("DLQ_RULES", "nowhere.toml")

    words = ["work", "shop:app", "--processes", processes]
    ran = subprocess.run(
        [sys.executable, "-m", "deadletter.cli", *words],
        env=os.environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert ran.returncode == 2
    assert "cannot read the rules in nowhere.toml" in ran.stderr
