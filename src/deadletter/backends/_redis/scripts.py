"""
The verbs, as scripts the server runs: a whole batch in one atomic step.

A script is sent once and named by its digest from then on; a server that has
forgotten it (restart, SCRIPT FLUSH, another node) is sent it again.
"""

from hashlib import sha1
from importlib.resources import files

from msgspec import Struct


class Script(Struct, frozen=True):
    """A script and its digest."""

    text: str
    sha: str


class Verbs(Struct, frozen=True):
    """What is done with a mailbox: every engine has scripts of its own for it."""

    send: Script
    receive: Script
    undo: Script
    settle: Script
    extend: Script
    sweep: Script
    count: Script


def read(package: str | None, *names: str) -> Script:
    """One script out of files in the folder `lua` of a package, in this order."""
    assert package is not None, "a module of a package"
    folder = files(package) / "lua"
    text = "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
