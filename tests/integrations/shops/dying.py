"""Kills a worker at a step of its filing: the process asks for it by DIE_AT."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from deadletter.integrations.reporter import Reporter

DIE_AT = os.environ.get("DIE_AT", "")
_OURS = f"{os.sep}deadletter{os.sep}"


class Steps:
    """The calls of our own functions while a report is filed."""

    def __init__(self) -> None:
        self.count = 0
        self.is_filing = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if self.is_filing and event == "call" and _OURS in frame.f_code.co_filename:
            self.count += 1
            if self.count == int(DIE_AT):
                die()


def die() -> None:
    """Kill this process, and the worker's main process, which leads its session."""
    os.kill(os.getsid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def arm() -> None:
    """Have the first report die at that step; at "kept" after it, and at 0 never: it counts."""
    if not DIE_AT:
        return
    steps, report = Steps(), Reporter._report

    def dying(reporter: Reporter, *words: Any) -> bool:
        if DIE_AT != "kept":
            sys.setprofile(steps)
            steps.is_filing = True
        is_filed = report(reporter, *words)
        steps.is_filing = False
        sys.setprofile(None)
        if DIE_AT == "kept":
            die()
        print(f"steps={steps.count}", flush=True)
        return is_filed

    threading.setprofile(steps)  # of the thread that files, which starts later
    Reporter._report = dying  # type: ignore[method-assign]
