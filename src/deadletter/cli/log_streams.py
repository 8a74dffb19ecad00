"""
The standard streams of a command that goes on until it is told to stop.

Results wait for their reader, as with any other command. Such a command does not: a
log that nobody reads must not stop the work.
"""

import msgspec

from deadletter.output.bounded_output import Notice, plain_notice
from deadletter.output.standard import never_block
from deadletter.ports import Clock


def never_wait(clock: Clock, *, as_json: bool) -> None:
    """Drop lines instead of waiting for a reader, until this run of `dlq` ends."""

    def document(lines: int) -> str:
        said = {"at": clock.now(), "level": "warning", "event": "lines-dropped"}
        return msgspec.json.encode({**said, "lines": lines}).decode()

    def notice(name: str) -> Notice:
        return document if as_json and name == "stdout" else plain_notice

    never_block(notice)
