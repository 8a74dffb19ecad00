"""
Make an office to freeze: `python tests/frozen/make.py URL`.

It does with real commands what people do with an office: messages that die of three
causes, notes, standings of groups, edits, replays with every outcome, tokens, queues.
What comes out is kept beside this file, and every later version must open it: an SQLite
file packed by `xz -9e`, or what `pg_dump --inserts --no-owner --no-privileges` prints,
without its `\\restrict` lines, packed the same way.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SHOP: Final = """
import asyncio
import os
from pathlib import Path

from deadletter import App, DLQPolicy, Fixed, GiveUp

app = App(os.environ["DLQ_URL"])
once = DLQPolicy(max_attempts=2, backoff=Fixed(0.01))
here = Path(__file__).parent

@app.handler("orders", policy=once, idempotent=True, brake=None)
async def orders(order: dict) -> None:
    if order["n"] % 10 == 3:
        raise GiveUp("order is void")
    if order["n"] % 3 == 0 and not (here / "fixed").exists():
        raise KeyError("price")

@app.handler("mails", policy=once, brake=None)
async def mails(mail: dict) -> None:
    raise ConnectionError(f"mail host said 550 to {mail['to']}")

async def send() -> None:
    async with app:
        for n in range(60):
            key = f"customer-{n % 8}" if n % 4 == 0 else None
            await app.send("orders", {"n": n}, id=f"o-{n}", key=key)
        for n in range(8):
            await app.send("mails", {"to": f"a{n}@example.com"}, id=f"m-{n}")
        await app.send("orders", {"n": 100}, idempotency_key="k-100")
        await app.send("orders", b"not JSON", id="broken", headers={"tenant": "eu"})

if __name__ == "__main__":
    asyncio.run(send())
"""
WORKING: Final = 15.0  # seconds; enough on a busy machine


def main(url: str) -> None:
    """Fill the office of a URL."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.py").write_text(SHOP, encoding="utf-8")
        desk = Desk(folder, url)
        desk.run(sys.executable, "shop.py")
        desk.work()
        desk.decide()
        all_of = ("replay", "--yes", "--no-key-order")
        (folder / "fixed").touch()
        desk.dlq(*all_of, "error:KeyError", "--limit", "8")
        desk.work()
        desk.dlq(*all_of, "source:mails", "--limit", "2")
        desk.work()
        desk.dlq("replay", "start", "error:KeyError is:pending", "--limit", "3")
        desk.dlq("send", "orders", '{"n": 7}', "--id", "waiting")
        desk.dlq("send", "orders", '{"n": 8}', "--id", "later", "--delay", "86400")
        desk.dlq("verify")


class Desk:
    """Commands of one office."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._environment = {**os.environ, "DLQ_URL": url}

    def dlq(self, *words: str) -> None:
        """Run a command, which must succeed."""
        who = () if "--server" in words else ("--actor", "ada")
        self.run(sys.executable, "-m", "deadletter", *who, *words)

    def work(self) -> None:
        """Run the handlers for a while."""
        command = [sys.executable, "-m", "deadletter", "work", "shop:app"]
        with subprocess.Popen(command, cwd=self._folder, env=self._environment) as worker:
            try:
                worker.wait(WORKING)
            except subprocess.TimeoutExpired:
                worker.terminate()

    def decide(self) -> None:
        """Say something of everything."""
        self.dlq("note", "asked the customer", "source:orders", "--limit", "2")
        self.dlq("review", "source:mails", "--limit", "3")
        self.dlq("close", "source:mails", "is:reviewed", "--limit", "1")
        self.dlq("discard", "error:GiveUp", "--limit", "2", "--yes", "--reason", "void")
        self.dlq("purge", "is:discarded", "--limit", "1", "--yes", "--reason", "asked")
        self.dlq("tokens", "create", "ada", "--role", "operator")
        with self._serving() as server:
            there = ("--server", server)
            self.dlq(*there, "queues", "lent", "create", "frames")
            for n in range(3):
                self.dlq(*there, "produce", "frames", f"frame {n}")
            self.dlq(*there, "lease", "frames", "--wait", "1")

    @contextmanager
    def _serving(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        command = [sys.executable, "-m", "deadletter", "serve", "--port", port]
        with subprocess.Popen(
            [*command, "--access", "off"], cwd=self._folder, env=self._environment
        ) as server:
            try:
                while True:
                    with suppress(OSError):
                        socket.create_connection(("127.0.0.1", int(port))).close()
                        break
                    time.sleep(0.1)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()

    def run(self, *command: str) -> None:
        """Run a program, which must succeed."""
        subprocess.run(command, cwd=self._folder, env=self._environment, check=True, timeout=60)


if __name__ == "__main__":
    main(sys.argv[1])
