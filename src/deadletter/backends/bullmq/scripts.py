"""The verbs, as scripts the server runs."""

from typing import Final

from deadletter.backends._redis.scripts import Script, Verbs, read


def _of_queue(*names: str) -> Script:
    return read(__package__, "queue", *names)


VERBS: Final = Verbs(
    send=_of_queue("send"),
    receive=_of_queue("jobs", "receive"),
    undo=_of_queue("jobs", "undo"),
    settle=_of_queue("jobs", "finish", "settle"),
    extend=_of_queue("jobs", "extend"),
    sweep=_of_queue("jobs", "sweep"),
    count=_of_queue("jobs", "info"),
)
NOTE: Final = _of_queue("jobs", "note")
SCHEDULE: Final = _of_queue("schedule")
PURGE: Final = _of_queue("finish", "purge")
REGISTRY: Final = read(__package__, "registry")
