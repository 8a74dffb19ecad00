"""One App in several processes and event loops, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

_READY: Final = """
import asyncio

async def ready(app, least):
    for _ in range(200):  # some brokers count a little later
        found = await (await app.engine()).broker.queues()
        count = sum(one.ready for one in found if one.options.name == mailbox)
        if count >= least:
            break
        await asyncio.sleep(0.05)
    return count
"""

_FORKS: Final = """
import os, sys
from deadletter import App
from deadletter.sync import SyncApp

url, office, mailbox = sys.argv[1:]
app = SyncApp(App(url, office=office or None), timeout=20)
app.send(mailbox, b"before")
children = []
for number in range(2):
    child = os.fork()
    if not child:
        app.send(mailbox, b"in a child")
        app.close()
        os._exit(0)
    children.append(child)
ends = [os.waitpid(child, 0)[1] for child in children]
assert ends == [0, 0], ends
app.send(mailbox, b"after")
app.send(mailbox, b"and again")

print(app.call(ready(app.app, 5)))
app.close()
"""

_LOOPS: Final = """
import sys
from deadletter import App, ConfigError

url, office, mailbox = sys.argv[1:]
app = App(url, office=office or None)

async def send():
    await app.send(mailbox, b"x")

for _ in range(3):
    asyncio.run(send())

async def beside():
    await app.send(mailbox, b"x")
    said = []

    def elsewhere():
        try:
            asyncio.run(send())
        except ConfigError as error:
            said.append(str(error))

    await asyncio.to_thread(elsewhere)
    count = await ready(app, 5 - bool(said))
    await app.close()
    return count, said

print(asyncio.run(beside()))
"""


def forked_senders(url: str, office: str = "", mailbox: str = "orders") -> int:
    """Send five messages, two of them in forked children; return how many arrived."""
    return int(_run(_FORKS, url, office, mailbox))


def loops_one_after_another(url: str, office: str = "", mailbox: str = "orders") -> str:
    """Send in four loops, one after another, and in one beside the last."""
    return _run(_LOOPS, url, office, mailbox)


def _run(script: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", _READY + script, *words],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()
