"""dlq send, queues, classify, verify, doctor, export, import, retention."""

import io
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Command
from deadletter.core.letter import State
from office.making import make_letter, make_letters


def received(dlq: Command, mailbox: str = "orders") -> Any:
    return dlq.do(lambda engine: engine.broker.source(mailbox).receive(limit=100, wait=0, lease=60))


def test_a_message_is_sent(dlq: Command) -> None:
    ran = dlq(
        *("send", "orders", '{"id": 1}', "-H", "tenant=eu", "-H", "x=a=b"),
        *("--key", "k", "--id", "m-1", "--idempotency-key", "i", "--reply-to", "r"),
        *("--expires-in", "60"),
    )

    (delivery,) = received(dlq)
    message = delivery.message
    assert ran.out == "m-1\n"
    assert message.body == b'{"id": 1}'
    assert message.headers == (("tenant", b"eu"), ("x", b"a=b"))
    assert message.content_type == "application/json"
    assert (message.key, message.idempotency_key, message.reply_to) == ("k", "i", "r")
    assert message.expires_at is not None


def test_a_body_comes_from_a_file_or_standard_input(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xff")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"piped")))

    dlq("send", "orders", "--file", str(tmp_path / "body"))
    dlq("send", "orders", "--file", "-", "--json")

    assert [one.message.body for one in received(dlq)] == [b"\x00\xff", b"piped"]


def test_a_delayed_message_waits(dlq: Command) -> None:
    dlq("send", "orders", "x", "--delay", "60")

    assert dlq("queues", "--json").document["delayed"] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["send", "orders"],
        ["send", "orders", "x", "--file", "y"],
        ["send", "orders", "--file", "no-such-file"],
        ["send", "orders", "x", "-H", "nonsense"],
        ["send", "a b", "x"],
        ["send", "orders", "x", "--delay", "inf"],
        ["send", "orders", "x", "--expires-in", "1e15"],
    ],
)
def test_unsendable_messages_are_rejected(dlq: Command, words: list[str]) -> None:
    assert dlq(*words).code == 2


def test_an_empty_id_is_refused(dlq: Command) -> None:
    ran = dlq("send", "orders", "{}", "--id", "")

    assert (ran.code, ran.out) == (2, "")
    assert "--id must not be empty" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to change: give --dead-queue"),
        (["--never-expire", "--expire-after", "3"], "cannot be combined"),
        (["--no-dead-queue", "--dead-queue", "dead"], "cannot be combined"),
        (["--expire-after", "1e300"], "at most 3,153,600,000"),
    ],
)
def test_changes_of_a_queue_that_cannot_be_are_refused(
    dlq: Command, words: list[str], said: str
) -> None:
    dlq("queues", "create", "dead")
    dlq("queues", "create", "orders")

    ran = dlq("queues", "update", "orders", *words)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_the_doctor_counts_as_people_do(dlq: Command) -> None:
    dlq("queues", "create", "dead")
    one = dlq("doctor").out
    dlq("queues", "create", "orders", "--dead-queue", "dead")
    two = dlq("doctor").out

    assert "1 mailbox answers." in one
    assert "2 mailboxes answer." in two
    assert "1 of 2 mailboxes have one." in two


def test_queues_are_made_changed_and_deleted(dlq: Command) -> None:
    assert dlq("queues", "create", "orders-dlq").code == 0
    made = dlq(
        *("queues", "create", "orders", "--dead-queue", "orders-dlq"),
        *("--max-attempts", "7", "--expire-after", "60", "--reference", "note"),
    )
    assert made.code == 0
    assert "orders-dlq" in dlq("queues", "list").out

    changed = dlq("queues", "update", "orders", "--max-attempts", "3", "--json")
    bare = dlq("queues", "update", "orders", "--no-dead-queue", "--never-expire", "--json")
    gone = dlq("queues", "delete", "orders", "--yes", "--json")

    assert changed.document["dead_queue"] == "orders-dlq"
    assert changed.document["max_attempts"] == 3
    assert bare.document["dead_queue"] is None
    assert bare.document["expire_after"] is None
    assert gone.document == {"mailbox": "orders", "purged": 0}
    assert [one["options"]["name"] for one in dlq("queues", "--json").documents] == ["orders-dlq"]


def test_a_queue_cannot_be_its_own_dead_queue(dlq: Command) -> None:
    ran = dlq("queues", "create", "orders", "--dead-queue", "orders")

    assert ran.code in {2, 4}
    assert ran.err.startswith("dlq: ")


def test_a_dead_queue_in_use_is_not_deleted(dlq: Command) -> None:
    dlq("queues", "create", "dead")
    dlq("queues", "create", "orders", "--dead-queue", "dead")

    refused = dlq("queues", "delete", "dead", "--yes")

    assert refused.code == 4
    assert "or force it (--force)" in refused.err
    assert dlq("queues", "delete", "dead", "--yes", "--force").code == 0


def test_deleting_a_queue_asks(dlq: Command) -> None:
    dlq.send("orders", "a", "b")

    ran = dlq("queues", "delete", "orders")

    assert ran.code == 2
    assert "delete mailbox orders and 2 messages in it" in ran.err
    assert dlq("queues", "delete", "nowhere", "--yes").code == 3
    assert dlq("queues", "update", "nowhere", "--max-attempts", "1").code == 3


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        (["connection refused"], "transient"),
        (["--type", "ValueError", "x"], "unknown"),
        (["--status", "503"], "transient"),
        (["--status", "404"], "permanent"),
        (["--grpc", "unavailable"], "transient"),
        (["--code", "ECONNRESET"], "transient"),
        (["--type", "TimeoutError"], "transient"),
        (["--type", "UnicodeDecodeError", "x"], None),
        (["--type", "some.module.Strange", "what"], "unknown"),
    ],
)
def test_an_error_is_classified(dlq: Command, words: list[str], trouble: str | None) -> None:
    ran = dlq("classify", *words)
    verdict = dlq("classify", *words, "--json").document

    assert ran.code == 0
    if trouble is not None:
        assert verdict["trouble"] == trouble
        assert f"trouble  {trouble}" in ran.out
    assert verdict["code"]


def test_rules_of_a_file_are_asked_first(dlq: Command, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nid = "closed"\ntrouble = "permanent"\ncode = "BANK_CLOSED"\n'
        'texts = ["connection refused"]\n'
    )

    verdict = dlq("classify", "connection refused", "--rules", str(rules), "--json").document

    assert (verdict["trouble"], verdict["rule"]) == ("permanent", "closed")
    assert dlq("classify", "x", "--rules", str(tmp_path / "none.toml")).code == 2
    rules.write_text("nonsense = [")
    assert dlq("classify", "x", "--rules", str(rules)).code == 2


def test_classify_wants_to_be_told_something(dlq: Command) -> None:
    ran = dlq("classify")

    assert ran.code == 2
    assert "describe the error" in ran.err


def test_an_office_that_adds_up_is_proven(dlq: Command) -> None:
    dlq.keep(make_letter())
    dlq.send("orders", "a")

    ran = dlq("verify")

    assert ran.code == 0
    assert "1 message and 1 letter add up" in ran.out
    assert dlq("verify", "--json").document["ok"] is True


def test_verify_names_ids_that_were_used_with_two_bodies(dlq: Command) -> None:
    first, second = make_letter(body=b"one"), make_letter(body=b"two")
    dlq.keep(first, second)
    (other,) = (
        one["id"] for one in dlq("list", "is:conflict", "--json").documents if one["id"] != first.id
    )

    ran = dlq("verify")

    assert ran.code == 0
    assert "1 letter with an id or key that was also used with another body" in ran.out
    assert other in ran.out
    assert "1 still open" in ran.out
    conflicts = dlq("verify", "--json").document["conflicts"]
    assert conflicts == {"total": 1, "open": 1, "ids": [other]}


def test_an_office_somebody_has_changed_is_found_out(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter())
    dlq("review", "*")
    with sqlite3.connect(tmp_path / "office.db") as connection:
        connection.execute("UPDATE audit SET actor = 'nobody'")
    connection.close()

    ran = dlq("verify")
    doctor = dlq("doctor")

    assert ran.code == 6
    assert "audit entry 1" in ran.out
    assert dlq("verify", "--json").document["ok"] is False
    assert doctor.code == 6
    assert "integrity" in doctor.out


def test_a_doctor_looks_at_everything(dlq: Command) -> None:
    dlq.keep(make_letter(now=datetime.now(UTC), died=timedelta(days=30)))

    ran = dlq("doctor")
    checks = dlq("doctor", "--json").documents

    assert ran.code == 0
    assert "older than 7 days" in ran.out
    assert {one["name"] for one in checks} >= {
        *("versions", "durability", "write-ahead log", "disk", "reachable"),
        *("dead queues", "suspects", "integrity", "clock", "review"),
    }


def test_exported_letters_are_imported_elsewhere(dlq: Command, tmp_path: Path) -> None:
    letter = make_letter(body=bytes(range(256)), headers={"x": b"\xff"})
    dlq.keep(letter, make_letter(2, source="payments"))
    file = tmp_path / "letters.jsonl"
    other = f"sqlite:///{tmp_path}/other.db"

    out = dlq("export", "source:orders", "--out", str(file))
    into = dlq("import", str(file), "--url", other, "--json")
    again = dlq("import", str(file), "--url", other)

    assert "1 letter written" in out.out
    assert file.stat().st_mode & 0o777 == 0o600
    assert into.document == {"added": 1, "known": 0, "wrong": 0, "problems": []}
    assert "already here" in again.out
    shown = dlq("show", letter.id, "--url", other)
    assert "imported from letters.jsonl" in shown.out


def test_an_export_overwrites_nothing_unasked(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter())
    file = tmp_path / "there"
    file.write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(file)

    assert dlq("export", "--out", str(file)).code == 4
    assert dlq("export", "--out", str(link), "--force").code == 2
    assert file.read_text() == "precious"
    assert dlq("export", "--out", str(file), "--force").code == 0
    assert file.read_text() != "precious"
    assert dlq("export", "--out", str(tmp_path / "no" / "dir")).code == 2


def test_a_sheet_has_no_formulas(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter(error_text="=1+1"))
    file = tmp_path / "letters.csv"

    ran = dlq("export", "--format", "csv", "--out", str(file), "--json")

    assert ran.document["letters"] == 1
    assert ",'=1+1," in file.read_text()


def test_a_hostile_archive_is_refused_with_its_line(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter())
    file = tmp_path / "bad.jsonl"
    dlq("export", "--out", str(file))
    head, _, end = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(head + b'{"head": "nonsense"}\n' + end)

    ran = dlq("import", str(file))

    assert ran.code == 2
    assert "bad.jsonl: the archive is damaged" in ran.err
    assert "  line 2: " in ran.err
    assert dlq("import", str(tmp_path / "none")).code == 2


def test_exports_and_imports_are_audited(dlq: Command, tmp_path: Path) -> None:
    dlq.keep(make_letter())
    file = str(tmp_path / "a.jsonl")

    dlq("export", "--out", file, "--reason", "backup")
    dlq("import", file)

    audit = dlq.do(lambda engine: engine.letters.audit())
    assert [one.action for one in audit] == ["export", "import", "import"]
    assert audit[0].reason == "backup"


def test_retention_lets_go_of_what_is_finished_and_old(dlq: Command) -> None:
    now = datetime.now(UTC)
    dlq.keep(
        *make_letters(20, now=now),
        make_letter(99, state=State.CLOSED, now=now, died=timedelta(days=100)),
    )

    due = dlq("retention", "--json")
    refused = dlq("retention", "run")
    ran = dlq("retention", "run", "--yes", "--json")

    assert due.document == {"due": 1}
    assert refused.code == 2
    assert ran.document == {"letters": 1, "ledger": 0}
    assert "0 letters past their retention" in dlq("retention", "due").out


def test_retention_refuses_when_the_clock_may_have_jumped(dlq: Command) -> None:
    old = {"now": datetime.now(UTC), "died": timedelta(days=100)}
    dlq.keep(*make_letters(15, state=State.CLOSED, **old))

    refused = dlq("retention", "run", "--yes")
    forced = dlq("retention", "run", "--yes", "--force", "--json")

    assert refused.code == 4
    assert "15 of 15" in refused.err
    assert forced.document["letters"] == 15


SHOP_WITH_RULES = """
from deadletter import App, DLQPolicy, ErrorClassifier, Rule, Trouble
from deadletter.core.failure.rules import DEFAULT

closed = Rule(id="bank-closed", trouble=Trouble.PERMANENT, code="BANK", texts=("closed",))
bank = DEFAULT.extended(closed)
app = App("memory://")

@app.handler("orders", policy=DLQPolicy(classifier=bank))
async def charge(order: dict) -> None: ...

@app.handler("mails")
async def mail(text: str) -> None: ...
"""


def test_classify_asks_the_rules_of_an_app(
    dlq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_with_rules.py").write_text(SHOP_WITH_RULES)
    monkeypatch.chdir(tmp_path)
    words = ("classify", "--app", "shop_with_rules:app")

    both = dlq(*words, "the bank is closed", "--json").documents
    one = dlq(*words, "the bank is closed", "--mailbox", "orders", "--json").document
    same = dlq(*words, "connection refused")
    shown = dlq(*words, "the bank is closed")

    assert [(each["mailboxes"], each["rule"]) for each in both] == [
        (["orders"], "bank-closed"),
        (["mails"], ""),
    ]
    assert (one["rule"], one["code"], "mailboxes" in one) == ("bank-closed", "BANK", False)
    assert same.out.splitlines()[0].startswith("trouble  transient")
    assert "In orders:" in shown.out
    assert "has a handler" not in shown.err
    assert "no handler is registered for nowhere" in dlq(*words, "x", "--mailbox", "nowhere").err
    assert "--mailbox needs an App" in dlq("classify", "x", "--mailbox", "orders").err
