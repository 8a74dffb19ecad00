"""
Runs one server and outlives nobody: `guard.py DIRECTORY UID COMMAND...`.

The server becomes the leader of a group of its own, under another user unless UID is
`-`, and its pid is the first line printed. We end when the server does. When our
standard input ends first, or we are somebody else's child, whoever started us is gone,
however that came about: then the group is killed and the directory removed.

We are started in a session of our own: what is sent to all of our starter's group, as
`timeout` and Ctrl-C do, must not end us before our work is done.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from threading import Event, Thread
from typing import Any

_LOOK = 0.5  # seconds; a child of our starter may hold our standard input open


def main() -> int:
    """Start the server, say its pid, watch both sides."""
    starter = os.getppid()
    directory, user, *command = sys.argv[1:]
    become: dict[str, Any] = {}
    if user != "-":
        become = {"user": int(user), "group": int(user), "extra_groups": []}
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True, **become
    )
    print(server.pid, flush=True)
    orphaned = Event()
    watched = (starter, server.pid, orphaned)
    Thread(target=_end_with_starter, args=watched, daemon=True).start()
    status = server.wait()
    _kill(server.pid)  # whatever it left behind
    if orphaned.is_set():
        shutil.rmtree(directory, ignore_errors=True)
    return status


def _end_with_starter(starter: int, group: int, orphaned: Event) -> None:
    while os.getppid() == starter:
        if select.select([0], [], [], _LOOK)[0]:
            break
    orphaned.set()
    _kill(group)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
