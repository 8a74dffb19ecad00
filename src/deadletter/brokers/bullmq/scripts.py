"""Scripts that the server runs, and the names of keys."""

import re
from base64 import b64encode
from os import getpid
from socket import gethostname
from typing import Final

from deadletter.brokers.redis_common.mailboxes import WakeSignal
from deadletter.brokers.redis_common.script_runner import Script, Verbs, read
from deadletter.core.errors import ConfigError


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
_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:{}-]{1,64}\Z")


class Keys:
    """Names of keys with a prefix."""

    def __init__(self, prefix: str = "bull") -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(
                f"prefix must be 1 to 64 letters, digits or _.:{{}}- characters, got {prefix!a}:"
                " choose another one"
            )
        self.registry = f"{prefix}:dlq-mailboxes"
        self._prefix = prefix

    def queue(self, name: str) -> tuple[str, str]:
        """Return the keys of scripts: our list of mailboxes, and the prefix of the queue's keys."""
        if ":" in name:
            raise ConfigError(f"names of BullMQ queues must not contain a colon, got {name!a}")
        return self.registry, f"{self._prefix}:{name}:"

    def signals(self, name: str) -> tuple[WakeSignal, WakeSignal]:
        """Return the keys that receivers wait on: BullMQ's marker, and ours for suspects."""
        _, base = self.queue(name)
        worker = self.worker(name)
        return _signal(f"{base}marker", worker), _signal(f"{base}dlq:bell")

    def worker(self, name: str) -> str:
        """Return the connection name by which BullMQ's `getWorkers` finds a worker of a queue."""
        queue = b64encode(name.encode()).decode()
        host = "".join(c if c.isalnum() or c in ".-" else "-" for c in gethostname())
        return f"{self._prefix}:{queue}:w:deadletter@{host}-{getpid()}"


def _signal(key: str, name: str = "") -> WakeSignal:
    return WakeSignal(key, wait_command="BZPOPMIN", wake_command=("ZADD", 0, "0"), name=name)
