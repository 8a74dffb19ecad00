"""Errors of handlers on a terminal."""

import sys
from pathlib import Path

import pytest
from rich.text import Text

from deadletter import NoBackoff
from deadletter.app import App
from deadletter.cli.tracebacks import tracebacks
from deadletter.harness import make_message

SHOP = """
import json

def total(order):
    return order["a"] * {"DE": 19}[order["country"]]

async def charge(order: dict) -> None:
    if "text" in order:
        json.loads(order["text"])
    try:
        total(order)
    except KeyError as error:
        raise ValueError("password=hunter2 \\x1b[31m") from error
"""


async def shown(folder: Path, *bodies: object) -> list[str]:
    """What a terminal shows of these bodies, each tried three times."""
    (folder / "tracebacks_shop.py").write_text(SHOP)
    module: dict[str, object] = {"__name__": "tracebacks_shop"}
    code = compile(SHOP, str(folder / "tracebacks_shop.py"), "exec")
    exec(code, module)
    texts: list[Text] = []
    app = App("memory://", observe=tracebacks(texts.append), brake=None)
    app.handler("orders", max_attempts=3, backoff=NoBackoff())(module["charge"])  # type: ignore[arg-type]
    async with app.testing() as t:
        for number, body in enumerate(bodies):
            await t.send("orders", make_message(body).body, id=f"o-{number}")
        await t.settled()
    return [text.plain for text in texts]


async def test_own_lines_come_first_and_causes_behind(tmp_path: Path) -> None:
    (text,) = await shown(tmp_path, {"a": 1, "country": "NO"})

    file = f"{tmp_path}/tracebacks_shop.py"
    assert text.splitlines() == [
        "  ValueError: password=[redacted] \\x1b[31m",
        f"    {file}:13 in charge",
        '      raise ValueError("password=[redacted] \\x1b[31m") from error',
        "  caused by KeyError: 'NO'",
        f"    {file}:5 in total",
        '      return order["a"] * {"DE": 19}[order["country"]]',
        f"    {file}:11 in charge",
        "      total(order)",
    ]


async def test_each_cause_is_shown_once(tmp_path: Path) -> None:
    bodies = [{"a": 1, "country": country} for country in ("NO", "SE", "FI")]

    texts = await shown(tmp_path, *bodies, {"text": "{"}, {"text": "["})

    assert [text.split(":")[0].strip() for text in texts] == [
        "ValueError",
        "json.decoder.JSONDecodeError",
    ]
    assert "other frames: dlq show ID --stacks" in texts[1]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
@pytest.mark.slow
def test_they_are_for_terminals_only(tmp_path: Path) -> None:
    import os
    import pty
    import signal
    import subprocess
    import time

    (tmp_path / "shop.py").write_text(
        "from deadletter import App\n"
        "app = App('memory://')\n"
        "@app.on_startup\n"
        "async def send() -> None:\n"
        "    await app.send('orders', 'x')\n"
        "@app.handler('orders', max_attempts=1)\n"
        "async def charge(name: str) -> None:\n"
        "    raise KeyError(name)\n"
    )

    def run(*, terminal: bool) -> str:
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "deadletter.cli", "work", "shop:app"]
        with (tmp_path / "log").open("wb") as log:
            worker = subprocess.Popen(
                words, cwd=tmp_path, stderr=theirs if terminal else log.fileno()
            )
            os.close(theirs)
            said, deadline = b"", time.monotonic() + 30
            while b"buried" not in said and time.monotonic() < deadline:
                if terminal:
                    said += os.read(ours, 4096)
                else:
                    said = (tmp_path / "log").read_bytes()
                    time.sleep(0.05)
            worker.send_signal(signal.SIGTERM)
            worker.wait(30)
            while terminal and b"in charge" not in said and time.monotonic() < deadline:
                said += os.read(ours, 4096)
        os.close(ours)
        return said.decode()

    assert "shop.py:8 in charge" in run(terminal=True)
    assert "in charge" not in run(terminal=False)
