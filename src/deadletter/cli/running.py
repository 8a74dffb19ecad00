"""One run of `dlq`, from its words to its exit code; errors become a sentence."""

import difflib
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from deadletter.core.errors import ConfigError, DeadLetterError, QueryError
from deadletter.core.text import clean, clean_lines

from .app import NAMES, build
from .exit_codes import ExitCode, code_for
from .streams import restored_streams, take_everything

_HELP: Final = frozenset({"--help", "-h"})


def run(words: Sequence[str]) -> int:
    """Do what the words say; the exit code tells how it went."""
    take_everything(sys.stdout, sys.stderr)
    with restored_streams():
        return _run(words)


def _run(words: Sequence[str]) -> int:
    try:
        app = build(words)
        _check_command(app, words)
        code = app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:
        return _nobody_reads()
    except SystemExit as ended:  # as rich says it, who prints the help
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _nobody_reads()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except CycloptsError as error:
        _say(_misunderstood(error))
        return ExitCode.USAGE
    except DeadLetterError as error:
        _debug()
        _say(_readable(error))
        return code_for(error)
    except Exception as error:  # noqa: BLE001 -- never a traceback, always a sentence
        _debug()
        _say(
            f"something unexpected went wrong: {type(error).__name__}: {error} "
            "(DLQ_DEBUG=1 shows where; please report it)"
        )
        return ExitCode.UNEXPECTED
    return int(code or 0)


def _check_command(app: App, words: Sequence[str]) -> None:
    """Refuse words that are no command, where `--help` would hide the mistake."""
    if not _HELP.intersection(words):
        return
    others = [word for word in words if word not in _HELP]
    with suppress(CycloptsError):  # something is missing: help says what
        _, bound, _ = app.meta.parse_args(others, exit_on_error=False, print_error=False)
        try:
            app.parse_args(bound.args, exit_on_error=False, print_error=False)
        except UnusedCliTokensError as error:
            raise ConfigError(_misunderstood(error)) from error


def _no_command(word: str) -> str:
    near = difflib.get_close_matches(word, NAMES, n=1)
    hint = f"did you mean `dlq {near[0]}`?" if near else "see `dlq --help`"
    return f"there is no command {word[:40]!r}; {hint}"


def _say(text: str) -> None:
    sys.stderr.write(f"dlq: {clean_lines(text)}\n")


def _debug() -> None:
    if os.environ.get("DLQ_DEBUG"):
        traceback.print_exc()


def _readable(error: DeadLetterError) -> str:
    if not isinstance(error, QueryError) or not error.query:
        return str(error)
    # The pointer must stand under the token, so what is before it is measured as
    # it is shown.
    before = clean(error.query[: error.at])
    shown = clean(error.query)
    return f"{error.text}\n  {shown}\n  {' ' * len(before)}^"


def _misunderstood(error: CycloptsError) -> str:
    error.verbose = False
    chain = list(error.command_chain or ())
    if isinstance(error, UnusedCliTokensError) and not chain and error.unused_tokens:
        return _no_command(error.unused_tokens[0])
    text = str(error).strip()
    return f"{text} See `{' '.join(['dlq', *chain])} --help`."


def _nobody_reads() -> int:
    # The other end of the pipe has seen enough. What Python flushes on its way
    # out has to go somewhere.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return ExitCode.OK
