"""
Lua scripts that the server runs: a whole batch in one atomic step.

A script is sent once and named by its digest from then on; a server that has
forgotten it (restart, SCRIPT FLUSH, another node) is sent it again.
"""

from datetime import UTC, datetime, timedelta
from hashlib import sha1
from importlib.resources import files
from typing import Final

from msgspec import Struct


class Script(Struct, frozen=True):
    """A script and its digest."""

    text: str
    sha: str


class Verbs(Struct, frozen=True):
    """The scripts of a mailbox; every engine has its own."""

    send: Script
    receive: Script
    undo: Script
    settle: Script
    extend: Script
    sweep: Script
    count: Script


def read(package: str | None, *names: str) -> Script:
    """Return one script from files in the folder `lua` of a package, in this order."""
    assert package is not None, "a module of a package"
    folder = files(package) / "lua"
    text = "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as whole microseconds since 1970, as it is stored."""
    return (at - EPOCH) // _MICROSECOND


def when(at: bytes) -> datetime:
    """Return the time that was stored."""
    return EPOCH + timedelta(0, 0, int(float(at)))


def seconds(duration: float) -> int:
    """Return a duration as whole microseconds, at least 0."""
    return max(0, round(duration * 1_000_000))
