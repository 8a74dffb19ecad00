"""
The whole gateway: gateway-api and gateway-worker, each in a process of its own.

    QUEUE_URL=bullmq://… MONGODB_URL=mongodb://… COURIER_SECRET=… python -m courier

When one of them ends, the other is stopped.
"""

import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Final

from .settings import of_this_process

PARTS: Final = ("courier.api", "courier.worker")
_POLL: Final = 0.1  # seconds


class Parts:
    """The two processes, from start to end."""

    def __init__(self) -> None:
        self._is_told = False
        self._processes = [subprocess.Popen([sys.executable, "-m", part]) for part in PARTS]

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """Ask both to stop; each finishes the work in progress."""
        self._is_told = True
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def wait(self) -> int:
        """Wait until both have ended; return 0 if they were asked to stop, else 1."""
        while all(process.poll() is None for process in self._processes):
            time.sleep(_POLL)
        was_told = self._is_told
        self.stop()
        for process in self._processes:
            process.wait()
        return 0 if was_told else 1


def main() -> int:
    """Run both until interrupted."""
    of_this_process()  # report invalid settings once
    parts = Parts()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, parts.stop)
    return parts.wait()


if __name__ == "__main__":
    sys.exit(main())
