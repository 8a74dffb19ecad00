"""What keys are called: as BullMQ does it."""

import re
from base64 import b64encode
from os import getpid
from socket import gethostname
from typing import Final

from deadletter.backends._redis.box import Bell
from deadletter.core.errors import ConfigError

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.:{}-]{1,64}\Z")


class Keys:
    """Names of keys, behind a prefix."""

    def __init__(self, prefix: str = "bull") -> None:
        if not _PREFIX.match(prefix):
            raise ConfigError(
                f"the prefix {prefix!a} has other characters than letters, digits and"
                " _.:{}- or is longer than 64: choose another one"
            )
        self.registry = f"{prefix}:dlq-mailboxes"
        self._prefix = prefix

    def queue(self, name: str) -> tuple[str, str]:
        """What scripts are told: our list of mailboxes, and how its keys begin."""
        if ":" in name:
            raise ConfigError(f"BullMQ allows no colon in the name of a queue: {name}")
        return self.registry, f"{self._prefix}:{name}:"

    def bells(self, name: str) -> tuple[Bell, Bell]:
        """What wakes those who wait: the marker of BullMQ, and ours for suspects."""
        _, base = self.queue(name)
        worker = self.worker(name)
        return _bell(f"{base}marker", worker), _bell(f"{base}dlq:bell")

    def worker(self, name: str) -> str:
        """The name of a connection by which `getWorkers` knows a worker of a queue."""
        queue = b64encode(name.encode()).decode()
        host = "".join(c if c.isalnum() or c in ".-" else "-" for c in gethostname())
        return f"{self._prefix}:{queue}:w:deadletter@{host}-{getpid()}"


def _bell(key: str, name: str = "") -> Bell:
    return Bell(key, waits="BZPOPMIN", rings=("ZADD", 0, "0"), name=name)
