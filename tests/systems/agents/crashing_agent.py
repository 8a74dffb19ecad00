"""
A main loop in a process of its own, which the request "poison" kills.

    python crashing_agent.py URL OFFICE RUNS VISIBILITY

Each run of the agent is recorded before it begins.
"""

import os
import signal
import sys
from pathlib import Path

from agents import (
    Backend,
    BackendMailbox,
    DeadLetter,
    DLQPolicy,
    FunctionAdapter,
    LoopGroup,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Session,
)
from deadletter import NoBackoff


def main(url: str, office: str, runs: str, visibility: str) -> int:
    def adapter(prompt: str, session: Session) -> str:
        with Path(runs).open("a") as file:
            file.write(f"{prompt}\n")
        if prompt == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        return prompt.upper()

    with Backend(url, office=office) as backend:
        requests: BackendMailbox[MainLoopRequest[str], MainLoopResult[str]] = BackendMailbox(
            name="requests", client=backend, body_type=MainLoopRequest[str]
        )
        dead: BackendMailbox[DeadLetter[MainLoopRequest[str]], None] = BackendMailbox(
            name="requests-dlq", client=backend, body_type=DeadLetter[MainLoopRequest[str]]
        )
        loop = MainLoop(
            adapter=FunctionAdapter(adapter),
            requests=requests,
            dlq=DLQPolicy(mailbox=dead, max_delivery_count=2),
            config=MainLoopConfig(
                slots=2, backoff=NoBackoff(), visibility_timeout=float(visibility)
            ),
        )
        return LoopGroup(loops=[loop]).run(wait_time_seconds=0.2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
