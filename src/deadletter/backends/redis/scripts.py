"""The verbs, as scripts the server runs."""

from typing import Final

from deadletter.backends._redis.scripts import Script, Verbs, read


def _read(*names: str) -> Script:
    return read(__package__, *names)


def _of_mailbox(name: str) -> Script:
    return _read("clock", "mailbox", "rows", name)


VERBS: Final = Verbs(
    send=_read("clock", "mailbox", "send"),
    receive=_of_mailbox("receive"),
    undo=_of_mailbox("undo"),
    settle=_of_mailbox("settle"),
    extend=_of_mailbox("extend"),
    sweep=_of_mailbox("sweep"),
    count=_read("clock", "mailbox", "info"),
)
ADOPT: Final = _read("clock", "mailbox", "adopt")
PURGE: Final = _read("clock", "mailbox", "purge")
REGISTRY: Final = _read("registry")
LEDGER_BEGIN: Final = _read("clock", "ledger_begin")
LEDGER_FINISH: Final = _read("clock", "ledger_finish")
LEDGER_FORGET: Final = _read("clock", "ledger_forget")
LEDGER_DROP: Final = _read("clock", "ledger_drop")
