"""
The process that kills what a worker leaves behind.

    python orphan_guard_process.py FD

Reads `+GROUP` and `-GROUP` lines until their end, then kills the groups that are
left. It imports next to nothing, so that it is small and starts quickly.
"""

import os
import signal
import sys


def main() -> None:
    """Watch over the groups that are named on the descriptor we were given."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    with open(int(sys.argv[1]), encoding="ascii") as lines:  # noqa: PTH123 -- a number
        for line in lines:
            group = int(line[1:])
            if line[0] == "+":
                groups.add(group)
            else:
                groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:  # it has ended by itself
            continue


if __name__ == "__main__":
    main()
