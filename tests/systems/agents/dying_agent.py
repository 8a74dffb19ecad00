"""
A main loop in a process of its own, which poison kills.

    python dying_agent.py URL OFFICE RUNS VISIBILITY

Every run of an agent is written down before it begins.
"""

import os
import signal
import sys
from pathlib import Path

from agents import (
    DeadLetter,
    DLQPolicy,
    LoopGroup,
    MainLoop,
    MainLoopConfig,
    MainLoopRequest,
    MainLoopResult,
    Post,
    PostMailbox,
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

    with Post(url, office=office) as post:
        requests: PostMailbox[MainLoopRequest[str], MainLoopResult[str]] = PostMailbox(
            name="requests", client=post, body_type=MainLoopRequest[str]
        )
        dead: PostMailbox[DeadLetter[MainLoopRequest[str]], None] = PostMailbox(
            name="requests-dlq", client=post, body_type=DeadLetter[MainLoopRequest[str]]
        )
        loop = MainLoop(
            adapter=adapter,
            requests=requests,
            dlq=DLQPolicy(mailbox=dead, max_delivery_count=2),
            config=MainLoopConfig(
                slots=2, backoff=NoBackoff(), visibility_timeout=float(visibility)
            ),
        )
        return LoopGroup(loops=[loop]).run(wait_time_seconds=0.2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
