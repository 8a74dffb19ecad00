"""A letter as a test that fails, until what it died of is mended."""

from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.core.letter import LetterHead
from deadletter.core.message import Message
from deadletter.core.packing import masked, written
from deadletter.core.text import attempts_of, clean

_SHORT: Final = 10  # characters of an id that are enough to tell letters apart
_MOST: Final = 160  # characters of an error in a comment
_TEST: Final = '''\
"""Written by `dlq repro`; passes once this letter can be handled."""

from pathlib import Path

from deadletter.testing.repro import handle
from {module} import {name}

# {about}
# {error}


def test_letter_{id}() -> None:
    handle({name}, Path(__file__).with_name("{fixture}"))
'''


def repro(head: LetterHead, message: Message, app: str, *, reveal: bool = False) -> dict[str, str]:
    """
    The files of a test, by name: the message, and what hands it to its handler.

    `app` is where the application is, as module:name. Secrets are masked, unless
    told to `reveal` them. Nothing of the message is in the code.
    """
    module, name = _place(app)
    id_ = head.id[:_SHORT]
    fixture = f"letter_{id_}.json"
    about = f"{head.source}, died {head.dead_at:%Y-%m-%d %H:%M} UTC, {attempts_of(head.attempts)}"
    error = f"{head.error_name}: {head.error_text}" if head.error_type else head.reason
    test = _TEST.format(
        module=module,
        name=name,
        about=_comment(about),
        error=_comment(error),
        id=id_,
        fixture=fixture,
    )
    shown = message if reveal else masked(message)
    return {fixture: written(head.source, shown), f"test_letter_{id_}.py": test}


def _place(app: str) -> tuple[str, str]:
    module, _, name = app.partition(":")
    if name.isidentifier() and all(part.isidentifier() for part in module.split(".")):
        return module, name
    raise ConfigError(f"{app!a} is no application: say where it is, as in shop:app")


def _comment(text: str) -> str:
    """One line, which no text can get out of."""
    line = clean(text).replace("\\n", " ")
    line = "".join(one if one.isprintable() else "?" for one in line)
    return line if len(line) <= _MOST else f"{line[: _MOST - 1]}…"
