r"""
Letters whose texts are no text, as older versions and foreign brokers stored them.

Lone surrogates, NULs and bytes that are not UTF-8: no command fails on them, and
`\udc80` is how they are shown and searched for.
"""

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli.conftest import Command
from deadletter.core.letter import DeadLetter
from office.making import make_letter

HALF = "m-\udc80"


@pytest.fixture
def odd(dlq: Command) -> DeadLetter:
    """Keep a letter with lone surrogates in all texts, and a normal one."""
    letter = make_letter(
        2,
        message_id=HALF,
        key="k\udc80",
        idempotency_key="i\ud800",
        content_type="text/\udfff",
        headers={"h\udc80": "x"},
        error_text="no \udc80",
        consumer="c\udc80",
    )
    dlq.keep(make_letter(1), letter)
    return letter


READING = [
    ("list",),
    ("--json", "list"),
    ("--json", "list", r"message:m-\udc80"),
    ("groups",),
    ("--json", "groups"),
    ("stats",),
    ("--json", "stats"),
    ("replay", "plan", "*"),
    ("--json", "replay", "plan", "*"),
    ("verify",),
    ("--json", "doctor"),
    ("export", "--force", "--out", "a.jsonl"),
    ("export", "--force", "--format", "csv", "--out", "a.csv"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_no_command_fails_on_half_a_character(
    dlq: Command, odd: DeadLetter, words: tuple[str, ...]
) -> None:
    ran = dlq(*words)

    assert ran.code == 0, ran.err


@pytest.mark.parametrize("words", [(), ("--json",), ("--reveal",), ("--stacks",)])
def test_such_a_letter_is_shown(dlq: Command, odd: DeadLetter, words: tuple[str, ...]) -> None:
    for id_ in (odd.id, odd.id[:8]):
        ran = dlq("show", id_, *words)

        assert ran.code == 0, ran.err
        assert r"m-\udc80" in ran.out.replace(r"\\u", r"\u")


def test_letters_with_odd_text_are_listed_and_found(dlq: Command, odd: DeadLetter) -> None:
    listed = {one["id"]: one for one in dlq("--json", "list").documents}
    (found,) = dlq("--json", "list", r'message:"m-\udc80" key:k\udc80').documents

    assert len(listed) == 2
    assert listed[odd.id]["message_id"] == r"m-\udc80"
    assert found["id"] == odd.id


def test_letters_with_odd_text_are_exported_imported_and_replayed_exactly(
    dlq: Command, odd: DeadLetter, tmp_path: Path
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"

    assert dlq("export", "--out", "a.jsonl").code == 0
    assert dlq("import", "a.jsonl", "--url", other).code == 0
    ran = dlq("replay", "*", "--yes", "--url", other)

    assert ran.code == 0, ran.err
    with closing(sqlite3.connect(tmp_path / "other.db")) as db:
        assert db.execute("SELECT count(*) FROM messages").fetchone() == (2,)
    there = Command(other, dlq._capsys)
    (delivery,) = there.do(
        lambda engine: engine.broker.source("orders").receive(limit=1, wait=0, lease=9)
    )
    assert delivery.message.lineage.letter_id
    documents = [json.loads(line) for line in Path("a.jsonl").read_bytes().splitlines()]
    assert [one.get("escaped") for one in documents] == [None, True, None, None]


def test_a_sheet_holds_it(dlq: Command, odd: DeadLetter) -> None:
    dlq("export", "--format", "csv", "--out", "a.csv")

    with Path("a.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert rows[odd.id]["message_id"] == r"m-\udc80"


@pytest.mark.parametrize(
    "stored", ["X'6d2dff'", "CAST(X'6d2dff' AS TEXT)", "X'6d2dedb280'", "X'6d2d00'"]
)
def test_odd_text_in_the_database_hides_no_letters(
    dlq: Command, tmp_path: Path, stored: str
) -> None:
    letters = [make_letter(1), make_letter(2), make_letter(3)]
    dlq.keep(*letters)
    with closing(sqlite3.connect(tmp_path / "office.db", isolation_level=None)) as db:
        db.execute(f"UPDATE letters SET message_id = {stored} WHERE message_id = 'm-2'")

    listed = [one["id"] for one in dlq("--json", "list").documents]

    assert sorted(listed) == sorted(letter.id for letter in letters)
    assert dlq("list").code == 0
    assert dlq("show", letters[1].id).code == 0


def test_ids_with_nul_and_very_long_ones_are_found(dlq: Command) -> None:
    letters = [
        make_letter(number, message_id=id_)
        for number, id_ in enumerate(["a\0b", "\0", "x" * 8192, "x" * 8191 + "y"])
    ]
    dlq.keep(*letters)

    for letter in letters:
        spelled = letter.head.message_id.replace("\0", r"\u0000")
        (found,) = dlq("--json", "list", f'message:"{spelled}"').documents
        assert found["id"] == letter.id
        assert found["message_id"] == letter.head.message_id
        for id_ in (letter.id, letter.id[:8]):
            assert dlq("--json", "show", id_).document["id"] == letter.id


def test_text_that_is_not_unicode_is_not_sent(dlq: Command) -> None:
    for option in ("--id", "--key", "--idempotency-key", "--reply-to"):
        ran = dlq("send", "orders", "x", option, "a\udc80")
        assert ran.code == 2
        assert "is not Unicode: character 2" in ran.err
    assert dlq("send", "orders", "x", "--content-type", "a\udc80").code == 2
    assert dlq("send", "orders", "x", "--header", "h\udc80=x").code == 2
    assert dlq("send", "ord\udc80", "x").code == 2
