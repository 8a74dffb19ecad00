"""Hostile text of messages, errors and people never controls the terminal (S8, S9)."""

import itertools
from typing import Any

import pytest

from cli.conftest import Command
from deadletter.core.attempts import Attempt, append
from office.making import NOW, make_letter

pytestmark = pytest.mark.slow

PAYLOADS = [
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31m",
    "\x1bPq#0\x1b\\",
    "a\rb",
    "forged\n2030-01-01 00:00:00  anna closed it",
    "\x08\x08\x08",
    "\x00nul",
    "\u202etxt.exe",
    "\u2066x\u2069",
    "line\u2028two\u2029three",
    "\ufeffbom",
    "tag\U000e0041",
    "[red]markup[/red]",
    "[link=http://evil]x[/link]",
    "[/]",
    "[bold",
    ":warning:",
    "{0.__class__}",
    "{{7*7}}",
    "%n%s%x",
    "${jndi:ldap://evil}",
    "\ud800",
]
SHOWN = [c for c in range(0x20) if c != 0x0A] + list(range(0x7F, 0xA0))
SHOWN += [0x2028, 0x2029, 0x202E, 0x2066, 0x2069, 0xFEFF, 0xE0041]


def is_harmless(text: str) -> bool:
    return not any(chr(code) in text for code in SHOWN)


def hostile(number: int, payload: str) -> Any:
    stored = payload.encode("utf-8", "replace").decode().replace("\x00", "")
    letter = make_letter(
        number,
        source="evil",
        error_type=f"x.{stored}",
        error_text=stored,
        reason_text=stored,
        consumer=stored,
        version=stored,
        message_id=f"{number}{stored}",
        key=stored,
        body=payload.encode("utf-8", "surrogatepass") + b' {"a": 1}',
        headers={stored or "x": payload.encode("utf-8", "surrogatepass")},
        content_type=stored,
        idempotency_key=stored,
        stack=stored,
    )
    history = append(
        letter.history, Attempt(number=3, at=NOW, text=stored, worker=stored, stack=stored)
    )
    return type(letter)(head=letter.head, message=letter.message, history=history, frame=stored)


@pytest.fixture
def evil(dlq: Command) -> Command:
    dlq.keep(*(hostile(number, payload) for number, payload in enumerate(PAYLOADS)))
    return dlq


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--limit", "100"],
        ["groups"],
        ["stats"],
        [],
        ["verify"],
        ["replay", "plan", "*"],
        ["list", "--limit", "100", "--json"],
        ["groups", "--json"],
        ["--json"],
    ],
)
def test_no_table_obeys_a_letter(evil: Command, words: list[str]) -> None:
    ran = evil(*words)

    assert ran.code == 0, ran.err
    assert is_harmless(ran.out)
    assert is_harmless(ran.err)


def test_no_story_obeys_a_letter(evil: Command) -> None:
    heads = evil.do(lambda engine: engine.letters.find(limit=100)).heads
    assert len(heads) == len(PAYLOADS)

    for head, more in itertools.product(heads, ([], ["--json"], ["--reveal"])):
        ran = evil("show", head.id, *more)
        assert ran.code == 0
        assert is_harmless(ran.out), ran.out


def test_markup_and_formats_are_shown_as_they_are(evil: Command) -> None:
    out = evil("list", "--limit", "100").out

    for text in ("[red]markup[/red]", ":warning:", "{0.__class__}", "{{7*7}}"):
        assert text in out


@pytest.mark.parametrize("payload", PAYLOADS)
def test_typed_arguments_are_escaped_in_output(dlq: Command, payload: str) -> None:
    letter = make_letter()
    dlq.keep(letter)
    typed = payload.encode("utf-8", "replace").decode().replace("\x00", "")

    noted = dlq("note", f"n {typed}", letter.id, "--actor", typed or "x")
    shown = dlq("show", letter.id)
    error = dlq("list", f"nosuchfield:{typed}")
    unknown = dlq(f"-{typed}")
    missing = dlq("show", f"!{typed}")

    assert noted.code == 0, noted.err
    for ran in (noted, shown, error, unknown, missing):
        assert is_harmless(ran.out)
        assert is_harmless(ran.err)
