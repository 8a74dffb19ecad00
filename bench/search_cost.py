"""
What costly searches cost, and what they do to everybody else.

    python bench/search_cost.py [--letters 100000] [--large 600] [--office FILE]

A real `dlq serve` over an office with some large bodies. Each search is asked once by
itself; then the six costliest are asked at once, each with a token of its own, while
somebody looks at /health and at a plain list.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import httpx
from msgspec.structs import replace

from deadletter.core.letter import DeadLetter
from deadletter.wiring.engines import open_engine
from office_letters import letters

BATCH = 500
TEXT = 4_000  # characters of a long error text
BODY = 900_000  # bytes of a large body
PATIENCE = 120.0  # seconds for one answer
HEAVY = 6

_DLQ = (sys.executable, "-m", "deadletter.cli")
_LONG = ("a" * 31 + "b ") * (TEXT // 33)
_DEEP = b'{"order": {"items": [%s]}}'
_ITEM = b'{"sku": "A-%06d", "note": "aaaaaaaaaaaaaaaaaaaaaaaaaaab"}'

READER = {
    "body.path, absent": "body.order.nothing:zzz",
    "body.path, present": "body.order.items.5.sku:zzz",
    "100 body paths": " OR ".join(f"body.order.items.{n}.sku:*z*{n}" for n in range(45)),
    "header": "header.tenant:zzz",
    "text, absent": "text:zzzzzz",
    "text, 60 alternatives": " OR ".join(f"text:*a*b*c*{n}z" for n in range(60)),
    "text, many stars": "text:" + "*".join("abababab") + "z",
    "text, long": 'text:"' + "a" * 1500 + 'z"',
    "negations": " ".join(f"!text:a{n}b*z" for n in range(60)),
    "long list": "code:[" + ",".join(f"*x{n}*" for n in range(90)) + "]",
    "deep brackets": "(" * 19 + "text:qqq OR body.a.b:1" + ")" * 19,
}
OPERATOR = {
    "word, absent": "zzzzzzzz",
    "60 words": " OR ".join(f"ab{n}z" for n in range(60)),
    "word, many stars": "*".join("abababab") + "zq",
}


def stock(n: int, large: int) -> Iterator[DeadLetter]:
    """Letters of which some have long texts, and some large bodies."""
    every = max(1, n // max(large, 1))
    items = BODY // (len(_ITEM) + 4)
    for number, plain in enumerate(letters(n)):
        letter = plain
        if number % 3 == 0:
            text = f"{letter.head.error_text}: {_LONG}"
            letter = replace(letter, head=replace(letter.head, error_text=text))
        if number % every == 0:
            body = _DEEP % b", ".join(_ITEM % item for item in range(items))
            letter = replace(
                letter,
                head=replace(letter.head, size=len(body)),
                message=replace(letter.message, body=body),
            )
        yield letter


async def fill(file: Path, found: Iterable[DeadLetter]) -> None:
    """Keep letters in a new file."""
    engine = await open_engine(f"sqlite:///{file}")
    assert engine.letters is not None
    several = iter(found)
    while batch := list(islice(several, BATCH)):
        await engine.letters.keep(batch)
    await engine.close()


class Server:
    """A server in a process of its own."""

    def __init__(self, file: Path) -> None:
        self._environ = os.environ | {"DLQ_URL": f"sqlite:///{file}"}
        self._said = file.with_suffix(".log")
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [*_DLQ, "serve", "--port", "0", "--quiet"],
                env=self._environ,
                stdout=said,
                stderr=said,
            )
        self.url = self._read(r"(http://[\w.:]+)")

    def _read(self, pattern: str) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if found := re.search(pattern, self._said.read_text()):
                return found[1]
            time.sleep(0.05)
        raise SystemExit(f"the server did not start: {self._said.read_text()}")

    def token(self, name: str, role: str) -> str:
        """A token for somebody."""
        made = subprocess.run(
            [*_DLQ, "tokens", "create", name, "--role", role],
            env=self._environ,
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"dlq_\S+", made.stdout + made.stderr)
        if found is None:
            raise SystemExit(f"no token in {made.stdout} {made.stderr}")
        return found[0]

    @property
    def cpu(self) -> float:
        """Seconds of processor time it has used."""
        told = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2]
        user, system = told.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """MB it has had at most."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) // 1024 if found else 0

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()


def ask(server: Server, token: str, query: str) -> tuple[str, dict[str, object]]:
    """One answer, in a few words and whole."""
    with httpx.Client(timeout=PATIENCE) as client:
        try:
            answer = client.get(
                f"{server.url}/api/v1/letters",
                params={"query": query, "limit": 50},
                headers={"authorization": f"Bearer {token}"},
            )
        except httpx.HTTPError as error:
            return type(error).__name__, {}
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text[:100]}", {}
    found = answer.json()
    return f"{len(found['heads'])} found, {found['looked_at']:,} looked at", found


class Bystander(threading.Thread):
    """Somebody who looks at /health and a plain list all the time."""

    def __init__(self, server: Server, token: str) -> None:
        super().__init__(daemon=True)
        self._server, self._token = server, token
        self._done = threading.Event()
        self.times: dict[str, list[float]] = {"/health": [], "/api/v1/letters": []}

    def run(self) -> None:
        auth = {"authorization": f"Bearer {self._token}"}
        with httpx.Client(timeout=PATIENCE, headers=auth) as client:
            while not self._done.is_set():
                for path, times in self.times.items():
                    start = time.monotonic()
                    try:
                        client.get(f"{self._server.url}{path}").raise_for_status()
                    except httpx.HTTPError as error:
                        print(f"  {path}: {type(error).__name__}")
                    times.append((time.monotonic() - start) * 1000)
                time.sleep(0.02)

    def stop(self) -> str:
        """What it took."""
        self._done.set()
        self.join()
        told = []
        for path, times in self.times.items():
            times.sort()
            middle, worst = times[len(times) // 2], times[-1]
            told.append(f"{path} {middle:.0f} ms, at most {worst:.0f} (n {len(times)})")
        return "; ".join(told)


def measure(server: Server, rounds: int) -> None:
    """Each search by itself, then the costliest at once."""
    reader = server.token("rita", "reader")
    cost: list[tuple[float, str, str]] = []
    quiet = Bystander(server, reader)
    quiet.start()
    time.sleep(2)
    print(f"idle: {quiet.stop()}")
    for number, (name, query) in enumerate((READER | OPERATOR).items()):
        who = "operator" if name in OPERATOR else "reader"
        token = server.token(f"alone{number}", who)
        before, start = server.cpu, time.monotonic()
        told, _ = ask(server, token, query)
        cpu, wall = server.cpu - before, time.monotonic() - start
        cost.append((cpu, name, query))
        print(f"{name:24} {cpu:6.2f} s CPU, {wall:6.2f} s wall: {told}", flush=True)
    cost.sort(reverse=True)
    heavy = [query for _, _, query in cost[:HEAVY]]
    print(f"at once: {', '.join(name for _, name, _ in cost[:HEAVY])}")
    tokens = [server.token(f"heavy{n}", "operator") for n in range(HEAVY)]
    watching = Bystander(server, reader)
    watching.start()
    before, start = server.cpu, time.monotonic()
    asking = [
        threading.Thread(target=lambda t=token, q=query: [ask(server, t, q) for _ in range(rounds)])
        for token, query in zip(tokens, heavy, strict=True)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    print(
        f"six at once, {rounds} times: {server.cpu - before:.1f} s CPU,"
        f" {time.monotonic() - start:.1f} s wall, {server.memory} MB"
    )
    print(f"meanwhile: {watching.stop()}")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--letters", type=int, default=100_000)
    options.add_argument("--large", type=int, default=600)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--office", type=Path)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = given.office or Path(folder) / "office.db"
        if not file.exists():
            start = time.monotonic()
            asyncio.run(fill(file, stock(given.letters, given.large)))
            print(f"{given.letters:,} letters kept in {time.monotonic() - start:.0f} s")
        server = Server(file)
        try:
            measure(server, given.rounds)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
