"""
Archives whose writers and readers are killed, and archives that are damaged.

An export is whole or not there. An import that was killed is simply run again. No
damage to an archive goes unnoticed, and no letter comes out of one changed.
`make faults` kills 100 times and damages 3,000 times.
"""

import asyncio
import io
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from deadletter.core.letter import DeadLetter
from deadletter.office.archive import check, read_letters
from deadletter.wiring.engines import opened
from office.making import make_letter, make_letters
from office.test_archive import archive_of

SEED = 20261117
PATIENCE = 120.0


@pytest.mark.faults
@pytest.mark.slow
def test_killed_exports_and_imports_leave_nothing_half_done(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills = 50 if request.config.getoption("--long") else 2
    draw = random.Random(SEED)
    here, there = tmp_path / "here.db", tmp_path / "there.db"
    file = tmp_path / "exports" / "letters.jsonl"
    file.parent.mkdir()
    letters = make_letters(500 * kills, body=b"x" * 1_000)
    asyncio.run(_keep(here, letters))
    exporting = ("export", "--url", f"sqlite:///{here}", "--out", str(file))
    importing = ("import", str(file), "--url", f"sqlite:///{there}")

    cut = [_kill(exporting, lambda: _size(file), draw.randrange(500_000)) for _ in range(kills)]
    assert not file.exists()
    assert _run(exporting) == 0
    taken = [_kill(importing, lambda: _count(there), draw.randrange(300)) for _ in range(kills)]
    assert _run(importing) == 0

    assert asyncio.run(_all(there)) == {letter.id: letter for letter in letters}
    assert taken == sorted(taken)
    print(f"\nexports killed at {cut} bytes, imports at {taken} letters")


@pytest.mark.faults
def test_no_damage_to_an_archive_goes_unnoticed(request: pytest.FixtureRequest) -> None:
    rounds = 3_000 if request.config.getoption("--long") else 300
    draw = random.Random(SEED)
    letters = [make_letter(n, body=draw.randbytes(50)) for n in range(30)]
    whole = archive_of(*letters).getvalue()
    known = {letter.id: letter for letter in letters}
    salvaged = 0
    for _ in range(rounds):
        damaged = _damaged(whole, draw)
        if damaged == whole:
            continue
        assert check(io.BytesIO(damaged)).wrong, damaged
        for letter in read_letters(io.BytesIO(damaged)):
            assert letter == known[letter.id]
            salvaged += 1
    print(f"\n{rounds} damaged archives noticed; {salvaged} letters in them intact")


def _damaged(whole: bytes, draw: random.Random) -> bytes:
    lines = whole.splitlines(keepends=True)
    match draw.randrange(6):
        case 0:  # cut
            return whole[: draw.randrange(len(whole))]
        case 1:  # a flipped bit
            place = draw.randrange(len(whole))
            flipped = bytes([whole[place] ^ 1 << draw.randrange(8)])
            return whole[:place] + flipped + whole[place + 1 :]
        case 2:  # lines removed
            kept = draw.sample(range(len(lines)), draw.randrange(1, len(lines)))
            return b"".join(lines[n] for n in sorted(kept))
        case 3:  # lines in another order
            return b"".join(draw.sample(lines, len(lines)))
        case 4:  # a line twice
            place = draw.randrange(len(lines))
            return b"".join([*lines[:place], lines[place], *lines[place:]])
        case _:  # zeros, as a disk leaves them after a power cut
            place = draw.randrange(len(whole))
            return whole[:place] + bytes(len(whole) - place)


def _run(words: Sequence[str]) -> int:
    command = [sys.executable, "-m", "deadletter.cli", *words]
    return subprocess.run(
        command, timeout=PATIENCE, check=False, stdout=subprocess.DEVNULL
    ).returncode


def _kill(words: Sequence[str], done: Callable[[], int], more: int) -> int:
    """Kill a command when it has done so much more than before; return how much."""
    enough = done() + 1 + more
    command = [sys.executable, "-m", "deadletter.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE
    while done() < enough:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
    process.kill()
    process.wait(PATIENCE)
    return done()


def _size(file: Path) -> int:
    """Return how much of a file is written, under whatever name."""
    sizes = [part.stat().st_size for part in file.parent.iterdir()]
    return sum(sizes)


def _count(file: Path) -> int:
    """Return how many letters are in an office."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as db, suppress(sqlite3.OperationalError):
        (found,) = db.execute("SELECT count(*) FROM letters").fetchone()
        return int(found)
    return 0


async def _keep(file: Path, letters: list[DeadLetter]) -> None:
    async with opened(f"sqlite:///{file}") as engine:
        assert engine.letters is not None
        await engine.letters.keep(letters)


async def _all(file: Path) -> dict[str, DeadLetter]:
    found: dict[str, DeadLetter] = {}
    async with opened(f"sqlite:///{file}") as engine:
        store, after = engine.letters, None
        assert store is not None
        while True:
            page = await store.find(limit=500, after=after)
            whole = await store.get([head.id for head in page.heads])
            found |= {letter.id: letter for letter in whole}
            after = page.after
            if after is None:
                assert await store.verify() == []
                return found
