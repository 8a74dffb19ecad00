"""
The service with other handlers for dead requests.

The question about Godot gets its fact and is replayed, thefts are discarded, and the handler
fails on all others. Each takes some time, so that there is something to measure.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from agents import DeadLetter, DLQConsumer
from agents.__main__ import log_to_stderr
from agents.replay import replay_handler
from agents.resolvers import CompositeResolver
from agents.service import Mailboxes, serve
from agents.settings import Settings
from agents.telemetry import Telemetry

SECONDS = 0.05  # that a handler takes
SETTINGS = Settings.from_environment()


def consumers(boxes: Mailboxes, telemetry: Telemetry) -> list[DLQConsumer[Any]]:
    def handle(letter: DeadLetter[Any]) -> str | None:
        time.sleep(SECONDS)
        match letter.body.request.text:
            case "What about Godot?":
                Path(SETTINGS.facts).write_text(json.dumps({"godot": "He comes"}))
                resolver = CompositeResolver({}, boxes.answers)
                return replay_handler(letter, source=boxes.requests, reply_resolver=resolver)
            case "Steal it":
                return "discard"
            case _:
                raise ConnectionError("nobody is there")

    return [DLQConsumer(mailbox=boxes.dead_requests, handler=handle)]


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(serve(SETTINGS, consumers))
