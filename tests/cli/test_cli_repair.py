import json
from pathlib import Path

import pytest

from cli.conftest import Command
from deadletter.core.letter import DeadLetter
from office.making import make_letter

PATCH = '{"currency": "EUR"}'
WAS = '{"currency": "eur"}'


@pytest.fixture
def letters(dlq: Command) -> list[DeadLetter]:
    bodies = [
        b'{"currency": "eur", "n": 1.50}',
        b'{"currency":"eur"}',
        b'{"currency": "usd"}',
        b"no",
    ]
    made = [make_letter(number, body=body) for number, body in enumerate(bodies, 1)]
    dlq.keep(*made)
    return made


def bodies_of(dlq: Command, letters: list[DeadLetter]) -> list[bytes]:
    found = dlq.do(lambda engine: engine.letters.get([one.id for one in letters]))
    by_id = {one.id: one.message.body for one in found}
    return [by_id[one.id] for one in letters]


def test_a_dry_run_shows_what_would_change(dlq: Command, letters: list[DeadLetter]) -> None:
    ran = dlq("repair", "source:orders", "--patch", PATCH, "--was", WAS, "--dry-run")

    assert (ran.code, ran.err) == (0, "")
    assert '+   "currency": "EUR",' in ran.out
    assert "2 letters of 4 would change." in ran.out
    assert f"1 letter left alone: have another value there ({letters[2].id[:10]})." in ran.out
    assert bodies_of(dlq, letters) == [one.message.body for one in letters]


def test_letters_are_repaired_and_restored(dlq: Command, letters: list[DeadLetter]) -> None:
    ran = dlq(
        *("repair", "source:orders", "--patch", PATCH, "--was", WAS),
        *("--reason", "upper case", "--yes"),
    )

    assert ran.code == 0
    assert "2 letters repaired." in ran.out
    assert bodies_of(dlq, letters)[:2] == [b'{"currency": "EUR", "n": 1.50}', b'{"currency":"EUR"}']

    ran = dlq("repair", "source:orders", "--undo", "--reason", "wrong", "--yes")
    assert (ran.code, "2 letters restored." in ran.out) == (0, True)
    assert bodies_of(dlq, letters) == [one.message.body for one in letters]


def test_the_change_of_one_edit_is_repeated(
    dlq: Command, letters: list[DeadLetter], tmp_path: Path
) -> None:
    (tmp_path / "new").write_bytes(b'{"currency": "EUR", "n": 1.50}')
    dlq("edit", letters[0].id, "--body", str(tmp_path / "new"), "--yes")

    like = ("--like", letters[0].id[:8])
    ran = dlq("--json", "repair", "source:orders", *like, "--reason", "as there", "--yes")

    assert ran.code == 0
    told = json.loads(ran.out)
    assert (told["asked"], told["moved"]) == (4, 1)
    assert bodies_of(dlq, letters)[1:3] == [b'{"currency":"EUR"}', b'{"currency": "usd"}']


def test_a_patch_can_be_in_a_file(dlq: Command, letters: list[DeadLetter], tmp_path: Path) -> None:
    (tmp_path / "patch.json").write_text(PATCH)

    file = str(tmp_path / "patch.json")
    ran = dlq("--json", "repair", "source:orders", "--patch", file, "--dry-run")

    plan = json.loads(ran.out)
    assert plan["verdicts"] == {"change": 3, "not_json": 1}
    assert len(plan["samples"]) == 3


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--patch", PATCH), 2, "--reason"),
        (("--reason", "why"), 2, "--patch or with --like"),
        (("--patch", PATCH, "--like", "abcdef", "--reason", "why"), 2, "either"),
        (("--like", "abcdef", "--was", WAS, "--reason", "why"), 2, "--was"),
        (("--undo", "--patch", PATCH, "--reason", "why"), 2, "--undo"),
        (("--patch", '{"a": }', "--dry-run"), 2, "line 1, column 7"),
        (("--patch", "missing.json", "--dry-run"), 2, "cannot read missing.json"),
        (("--patch", PATCH, "--was", '{"currency": "chf"}', "--reason", "why", "--yes"), 4, "fits"),
        (("--patch", PATCH, "--reason", "why"), 2, "--yes"),
    ],
)
def test_repairs_that_are_unclear_change_nothing(
    dlq: Command, letters: list[DeadLetter], options: tuple[str, ...], code: int, said: str
) -> None:
    ran = dlq("repair", "source:orders", *options)

    assert ran.code == code
    assert said in ran.err
    assert bodies_of(dlq, letters) == [one.message.body for one in letters]


def test_an_edit_that_is_no_patch_is_not_repeated(dlq: Command, letters: list[DeadLetter]) -> None:
    ran = dlq("repair", "source:orders", "--like", letters[3].id, "--dry-run")

    assert ran.code == 2
    assert "cannot be repeated as a patch: the body is not JSON" in ran.err
