"""
The verbs, as scripts the server runs: a whole batch in one atomic step.

A script is sent once and named by its digest from then on; a server that has
forgotten it (restart, SCRIPT FLUSH, another node) is sent it again.
"""

from hashlib import sha1
from importlib.resources import files
from typing import Final

from msgspec import Struct


class Script(Struct, frozen=True):
    """A script and its digest."""

    text: str
    sha: str


def _read(*names: str) -> Script:
    folder = files(__package__) / "lua"
    text = "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _of_mailbox(name: str) -> Script:
    return _read("clock", "mailbox", "rows", name)


SEND: Final = _read("clock", "mailbox", "send")
RECEIVE: Final = _of_mailbox("receive")
UNDO: Final = _of_mailbox("undo")
SETTLE: Final = _of_mailbox("settle")
EXTEND: Final = _of_mailbox("extend")
SWEEP: Final = _of_mailbox("sweep")
INFO: Final = _read("clock", "mailbox", "info")
ADOPT: Final = _read("clock", "mailbox", "adopt")
PURGE: Final = _read("clock", "mailbox", "purge")
REGISTRY: Final = _read("registry")
LEDGER_BEGIN: Final = _read("clock", "ledger_begin")
LEDGER_FINISH: Final = _read("clock", "ledger_finish")
LEDGER_FORGET: Final = _read("clock", "ledger_forget")
LEDGER_DROP: Final = _read("clock", "ledger_drop")
