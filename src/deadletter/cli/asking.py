"""Are you sure? Asked on a terminal; elsewhere --yes has to say it."""

import sys

from rich.text import Text

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.safe import clean

from .desk import Desk
from .interrupts import interruptible, wait_for_keys


def agreed(desk: Desk, what: str, *, yes: bool, count: int | None = None) -> None:
    """
    Go on only if a person agrees to `what`, such as "discard 3 letters".

    Given a `count`, that number has to be typed: no slip of the finger agrees.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(f"this would {what}: add --yes to do it without being asked")
    if count is not None and count > 1:
        answer = _asked(desk, f"This will {what}. Type {count} to go on: ")
        agrees = answer.replace(",", "").strip() == str(count)
    else:
        answer = _asked(desk, f"This will {what}. Go on? [y/N] ")
        agrees = answer.strip().lower() in {"y", "yes"}
    if not agrees:
        raise Conflict("nothing was changed")


def _asked(desk: Desk, question: str) -> str:
    words = Text(clean(question), style="bold")
    try:
        with interruptible():
            desk.err.print(words, end="", soft_wrap=True)
            wait_for_keys()
            return input()
    except EOFError:
        return ""
    except KeyboardInterrupt:
        desk.err.print()  # what is said next does not stand behind the question
        raise
