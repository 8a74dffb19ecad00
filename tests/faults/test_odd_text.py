"""
Letters with the oddest texts, in every place a letter has one.

No command fails on any of them, none is missing from a list or an archive, and each
is found by its id. `make faults` does it with 2,000 letters.
"""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest

from deadletter.app import App
from deadletter.cli.app import run
from deadletter.core.errors import ConfigError
from deadletter.core.letter import DeadLetter
from deadletter.core.query import parse, show
from deadletter.core.query.ast import Op, Term
from deadletter.core.query.fields import literal
from office.making import make_letter

SEED = 20261118
_PIECES = (
    *("\0", "\udc80", "\ud800", "\udfff\ud800", "\ufdd0", "\ufdd0dc80", r"\udc80"),
    *("\x1b[2J", "\n", "\r", "\u202e", "\u2028", "=1+1", '"', "'", "*", "\\", "{"),
    *("a", "é", "\U0001f4ee", "x" * 3_000),
)


@pytest.mark.faults
def test_no_letter_is_too_odd_to_be_listed_found_exported_and_replayed(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    count = 2_000 if request.config.getoption("--long") else 100
    draw = random.Random(SEED)
    letters = [_letter(number, draw) for number in range(count)]
    monkeypatch.chdir(tmp_path)
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "there"))
    refused = asyncio.run(_kept(here, letters))
    ids = {letter.id for letter in letters}

    def said(*words: str) -> str:
        assert run(words) == 0, words
        return capsys.readouterr().out

    def listed(url: str) -> set[str]:
        out = said("--url", url, "--json", "list")
        return {json.loads(line)["id"] for line in out.splitlines()}

    assert listed(here) == ids
    said("--url", here, "list")
    said("--url", here, "replay", "plan", "*")
    said("--url", here, "export", "--format", "csv", "--out", "a.csv")
    said("--url", here, "export", "--out", "a.jsonl")
    said("--url", there, "import", "a.jsonl")
    assert listed(there) == ids
    said("--url", there, "replay", "*", "--yes", "--no-key-order")
    assert asyncio.run(_found(there, letters)) == ids
    with capsys.disabled():
        print(f"\n{count} odd letters came through; {refused} could not be sent")


async def _kept(url: str, letters: list[DeadLetter]) -> int:
    """Keep the letters; return how many of them could not be sent as messages."""
    async with App(url) as app:
        await (await app.letters()).keep(letters)
        return sum([await _is_refused(app, letter) for letter in letters])


async def _found(url: str, letters: list[DeadLetter]) -> set[str]:
    found = set()
    async with App(url) as app:
        store = await app.letters()
        for letter in letters:
            term = Term("message", Op.IS, (literal(letter.message.id),))
            page = await store.find(parse(show(term)))
            assert [head.id for head in page.heads] == [letter.id], show(term)
            found.add(letter.id)
    return found


def _text(draw: random.Random) -> str:
    return "".join(draw.choices(_PIECES, k=draw.randrange(1, 4)))


def _letter(number: int, draw: random.Random) -> DeadLetter:
    return make_letter(
        number,
        message_id=f"{number}-{_text(draw)}",
        key=_text(draw),
        idempotency_key=_text(draw),
        content_type=_text(draw),
        headers={_text(draw): b"\xff\0"},
        error_text=_text(draw),
        consumer=_text(draw),
    )


async def _is_refused(app: App, letter: DeadLetter) -> bool:
    """Send the message of a letter; whether it is refused, as it should be."""
    message = letter.message
    given: dict[str, Any] = {
        "id": message.id,
        "key": message.key,
        "idempotency_key": message.idempotency_key,
        "content_type": message.content_type,
        "headers": dict(message.headers),
    }
    texts = [*(text for text in given.values() if isinstance(text, str))]
    texts += [name for name, _ in message.headers]
    is_sound = all(_is_sound(text) for text in texts)
    try:
        await app.send("elsewhere", b"x", **given)
    except ConfigError:
        assert not is_sound
        return True
    assert is_sound
    return False


def _is_sound(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) <= 8192 and not any(
        "\ud800" <= character <= "\udfff" for character in text
    )
