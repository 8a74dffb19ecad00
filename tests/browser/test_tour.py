"""The tour of the console: the page of the documentation, followed by clicking in the demo."""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.async_api import expect

from browser.conftest import Visit
from browser.processes import ROOT

WITHIN = 60.0
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/sign-in#code=[0-9a-f]{32}")
_STEP = re.compile(r"^\d\. (.*?)(?=\n\n|\n\d\. )", re.MULTILINE | re.DOTALL)


class Demo:
    """`make run` on a terminal; what it shows there."""

    def __init__(self, folder: Path) -> None:
        mine, its = pty.openpty()
        self._terminal = mine
        self._shown = b""
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "TERM": "xterm",
            "DEMO_SPEED": "2",
            "COLUMNS": "100",
            "LINES": "50",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples/shop/demo.py")],
            cwd=folder,
            env=environ,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        # What a terminal does not take holds up whoever writes it.
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, pattern: re.Pattern[str]) -> str:
        """Wait until the terminal shows this, and return it."""
        deadline = time.monotonic() + WITHIN
        while time.monotonic() < deadline:
            if found := pattern.findall(self.look()):
                return found[-1]
            assert self._process.poll() is None, self.look()
            time.sleep(0.1)
        raise AssertionError(f"{pattern.pattern} was not shown: {self.look()[-4000:]}")

    def look(self) -> str:
        """Return everything that was shown so far, without colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._shown.decode(errors="replace"))

    def _read(self) -> None:
        with suppress(OSError):  # the other end is closed
            while told := os.read(self._terminal, 65_536):
                self._shown += told

    def end(self) -> None:
        """End it as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._reader.join(10)
        os.close(self._terminal)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    started = Demo(tmp_path)
    yield started
    started.end()


def steps_of_the_page() -> list[list[str]]:
    """Return what each step of the page tells to click, in order."""
    text = (ROOT / "docs/tour.md").read_text()
    return [re.findall(r"\*([^*]+)\*", step) for step in _STEP.findall(text)]


async def test_the_tour_can_be_taken(demo: Demo, visit: Visit) -> None:
    look, acknowledge, plan, judge, send, resolve = steps_of_the_page()
    link = demo.until(_LINK)
    base, _, path = link.partition("/sign-in")
    page = await visit(SimpleNamespace(url=base, has_access=False), "/sign-in" + path)

    await expect(page.get_by_role("heading", name="Needs you")).to_be_visible(timeout=30_000)
    await page.get_by_role("link", name=f"{look[0]}: KeyError").click(timeout=30_000)
    await page.get_by_role("button", name=acknowledge[0]).click()
    await expect(page.get_by_role("button", name=acknowledge[1])).to_be_visible()

    await page.get_by_role("link", name=plan[0]).click(timeout=WITHIN * 1_000)
    await page.get_by_label(judge[0]).fill("1.8 knows the rate")
    await page.get_by_role("button", name=judge[1]).click()
    await page.get_by_role("button", name=send[0]).click()
    await page.get_by_role("dialog").get_by_role("button", name=send[1]).click()
    await expect(page.get_by_text("12 handled.")).to_be_visible(timeout=30_000)

    await page.get_by_role("link", name=resolve[0]).click()
    await page.get_by_role("link", name=resolve[1]).click()
    await page.get_by_role("dialog").get_by_role("button", name=resolve[2]).click()
    await expect(page.locator("#notice")).to_contain_text("resolved in 1.8")
    demo.until(re.compile("✓ Resolve the group in 1.8"))
