"""`dlq serve` and workers as processes of their own, ended by their ids."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
WITHIN: Final = 30.0  # seconds in which a process is ready, or has ended
_TOKEN: Final = re.compile(r"dlq_[a-z0-9]+_[0-9a-f]{64}")


def wait_until(condition: Callable[[], object], what: str, *, within: float = WITHIN) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within:g} seconds"
        time.sleep(0.02)


class Dlq:
    """One `dlq` command that runs until it is ended; what it says goes to a file."""

    def __init__(self, folder: Path, url: str, *words: str, **environ: str) -> None:
        self.log = folder / f"{words[0]}-{time.monotonic_ns()}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
        path = os.pathsep.join(map(str, (ROOT / "src", HERE)))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "deadletter.cli", *words],
                cwd=folder,
                env={**kept, "DLQ_URL": url, "PYTHONPATH": path, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def said(self) -> str:
        """Everything it has said so far."""
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def until_said(self, text: str) -> str:
        """Wait until it has said this, and return everything."""
        wait_until(lambda: text in self.said or not self.runs, f"{text!r} in {self.log.name}")
        assert text in self.said, f"it ended and said: {self.said}"
        return self.said

    def end(self) -> None:
        """End it as Ctrl-C does; without mercy if it does not."""
        if self.runs:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait(WITHIN)


class Serve(Dlq):
    """A `dlq serve` on a free port."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *words: str,
        access: str = "on",
        port: int = 0,
        search_share: float = 600.0,  # tests open more pages in a minute than people do
    ):
        asked = ("serve", f"--port={port}", f"--access={access}", *words)
        super().__init__(folder, url, *asked, DLQ_SERVE_SEARCH_SHARE=f"{search_share:g}")
        said = self.until_said("http://127.0.0.1:")
        found = re.search(r"http://127\.0\.0\.1:\d+", said)
        assert found is not None
        self.url = found[0]
        self.has_access = access == "on"

    @property
    def first_token(self) -> str:
        """The token of the first administrator, which the first start prints."""
        return _TOKEN.findall(self.until_said("First token"))[0]

    @property
    def link(self) -> str:
        """The link that signs in, which the first start prints."""
        return re.findall(r"http://\S+#code=[0-9a-f]{32}", self.until_said("#code="))[0]

    def client(self, token: str = "") -> httpx.AsyncClient:
        """Return a client of the API."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=f"{self.url}/api/v1", headers=headers, timeout=WITHIN)


class Work(Dlq):
    """A worker of the shop in `browser_shop.py`, of some version."""

    def __init__(self, folder: Path, url: str, *, version: str = "1.8.0", **environ: str) -> None:
        self.version = version
        super().__init__(folder, url, "work", "browser_shop:app", SHOP_VERSION=version, **environ)
        self.until_said("worker-started")
