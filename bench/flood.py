"""
A flood of different error texts: how many groups it makes, what the commands cost.

    python bench/flood.py [--letters 200000] [--url URL]

Letters are filed as a busy worker files them, each with an error text of its own,
then one letter of a real new cause. Without a URL a SQLite file in a temporary
directory is used.
"""

import argparse
import asyncio
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from deadletter.core.alerts import Alerts, about_groups
from deadletter.core.burial import burial
from deadletter.core.failure import Bury, Failure, Reason, Trouble
from deadletter.core.letter import DeadLetter
from deadletter.core.message import Delivery, Message
from deadletter.observe.alerts import GROUPS
from deadletter.observe.notifications import SHOWN
from deadletter.ports import LetterStore
from deadletter.system import SystemClock
from deadletter.wiring.engines import open_engine

BATCH = 100
COMMANDS = (["--version"], [], ["groups"], ["doctor"])


def letters(n: int, now: datetime) -> Iterator[DeadLetter]:
    """Letters whose error texts have nothing in common, then one of another cause."""
    dice = random.Random(13)
    for number in range(n):
        words = (
            "".join(dice.choices(string.ascii_lowercase, k=dice.randint(3, 9))) for _ in range(5)
        )
        died = now - timedelta(milliseconds=n - number)
        yield letter(number, "shop.errors.Odd", " ".join(words), died)
    yield letter(n, "builtins.KeyError", "currency", now)


def letter(number: int, error: str, text: str, died: datetime) -> DeadLetter:
    """One letter that died of this."""
    message = Message(id=f"m-{number}", body=b'{"amount": 1}', sent_at=died)
    return burial(
        Delivery(message=message, mailbox="orders", attempt=1),
        Failure(
            trouble=Trouble.UNKNOWN,
            code="",
            error_type=error,
            text=text,
            frame="shop.orders:charge",
        ),
        Bury(Reason.FATAL_ERROR, "told to"),
        history="",
        now=died,
        consumer="charge",
        version="1.8",
    )


async def flood(store: LetterStore, n: int) -> None:
    """File all letters and print what became of them."""
    now = SystemClock().now()
    began = time.perf_counter()
    made = letters(n, now)
    while some := [one for _, one in zip(range(BATCH), made, strict=False)]:
        await store.keep(some)
    taken = time.perf_counter() - began
    print(f"{n + 1:,} letters filed in {taken:.1f} s ({(n + 1) / taken:,.0f} a second)")
    groups = await store.groups(only_open=False, limit=GROUPS)
    totals = Counter(group.fingerprint.partition("-")[0] for group in groups)
    overflow = sum(g.total for g in groups if g.fingerprint.startswith("overflow-"))
    print(f"{len(groups)} groups, {totals['overflow']} overflow, {overflow:,} in it")
    alerts = about_groups(groups, {}, Alerts(), now)
    names = [alert.error_type for alert in alerts]
    place = names.index("builtins.KeyError") + 1
    print(f"{len(alerts)} alerts, the new cause is number {place} of {SHOWN} shown")


def command(url: str, words: list[str]) -> None:
    """Run one command as people do, and print how long it takes."""
    run = [sys.executable, "-m", "deadletter.cli", "--url", url, *words]
    times, used = [], []
    for _ in range(3):
        began, before = time.perf_counter(), cpu()
        done = subprocess.run(run, capture_output=True, check=False, timeout=120)
        times.append(time.perf_counter() - began)
        used.append(cpu() - before)
    name = " ".join(["dlq", *words])
    print(f"{name:13} {min(times):.2f} s ({min(used):.2f} s of CPU), exit code {done.returncode}")


def cpu() -> float:
    """Return the CPU seconds that ended children have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def main() -> None:
    """Flood an office, then look at it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--letters", type=int, default=200_000)
    asked.add_argument("--url")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as place:
        url = given.url or f"sqlite:///{place}/flood.db"
        engine = await open_engine(url)
        assert engine.letters is not None
        await flood(engine.letters, given.letters)
        await engine.close()
        for words in COMMANDS:
            command(url, words)


if __name__ == "__main__":
    asyncio.run(main())
