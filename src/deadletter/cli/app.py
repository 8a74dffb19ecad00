"""
One run of `dlq`: the table of all commands, errors as sentences, and exit codes.

Commands are imported when they run, so that `dlq --help` and completions are fast. The
table has the module and the help line of each command.
"""

import asyncio
import difflib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Annotated, Any, Final, Literal

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import UnusedCliTokensError

from deadletter.core.errors import (
    BackendError,
    ConfigError,
    Conflict,
    DeadLetterError,
    Malformed,
    NotFound,
    QueryError,
    StoreLost,
)
from deadletter.core.text import clean, clean_lines
from deadletter.office.verbs import VERBS

from .streams import escape_unencodable, restored_streams


class ExitCode(IntEnum):
    """
    Exit codes of `dlq`, for scripts.

    0    done
    1    unexpected error: a defect of deadletter, please report it
    2    invalid command line or search, or --yes is missing
    3    letter, mailbox or replay not found
    4    changed in the meantime, not allowed in its state, or you declined
    5    broker or database unavailable
    6    a check failed; or letters of a replay failed again, or have no outcome in time
    7    the file of the store was removed or replaced while it was in use
    130  interrupted
    """

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNAVAILABLE = 5
    CHECK_FAILED = 6
    STORE_LOST = 7
    INTERRUPTED = 130


def code_for(error: BaseException) -> ExitCode:
    """Return the exit code for an error."""
    match error:
        case QueryError() | ConfigError() | Malformed():
            return ExitCode.USAGE
        case NotFound():
            return ExitCode.NOT_FOUND
        case Conflict():
            return ExitCode.CONFLICT
        case StoreLost():
            return ExitCode.STORE_LOST
        case BackendError():
            return ExitCode.UNAVAILABLE
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.UNEXPECTED


LOOK: Final = Group("Look", sort_key=1)
DECIDE: Final = Group("Decide", sort_key=2)
RUN: Final = Group("Run", sort_key=3)
CHECK: Final = Group("Check and keep", sort_key=4)
GLOBAL: Final = Group("Everywhere", sort_key=9)

_ITEMS: Final = "deadletter.queue_server.queue_commands"
_COMMANDS: Final = (
    ("list", "letters:list_", LOOK, "Search the dead letters, newest first."),
    ("searches", "searches:app", LOOK, "List, save and delete searches with a name."),
    ("groups", "groups:app", LOOK, "List problems: letters grouped by cause."),
    ("show", "letters:show", LOOK, "Show one letter and its whole story."),
    ("repro", "archive:repro", LOOK, "Write a failing test that reproduces a letter."),
    ("stats", "overview:stats", LOOK, "Count messages and letters."),
    ("outages", "overview:outages_app", LOOK, "List outages; release mailboxes."),
    ("workers", "workers:app", LOOK, "List the workers that run: mailboxes, versions."),
    ("report", "report:report", LOOK, "Report what happened in a shift."),
    ("note", "moves:note", DECIDE, "Add a note to letters."),
    ("edit", "edit:edit", DECIDE, "Edit the message of a letter."),
    ("repair", "repair:repair", DECIDE, "Make the same change to many letters."),
    ("replay", "replay:app", DECIDE, "Send letters back to their mailboxes."),
    ("confirm", "moves:confirm", DECIDE, "Confirm that replayed messages were handled."),
    *((verb.name, f"verbs:{verb.name}", DECIDE, verb.line) for verb in VERBS),
    ("init", "init:init", RUN, "Write a starter project into an empty directory."),
    ("work", "work:work", RUN, "Run the handlers of an App."),
    ("serve", "serve:serve", RUN, "Serve the HTTP API, the queue server and metrics."),
    ("drain", "drain:drain", RUN, "Import letters from a broker's own dead-letter queue."),
    ("send", "queues:send", RUN, "Send a message."),
    ("tokens", "tokens:app", RUN, "Create, list, revoke tokens of the server."),
    ("produce", f"{_ITEMS}:produce", RUN, "Add an item to a queue of the server."),
    ("lease", f"{_ITEMS}:lease", RUN, "Lease items from a queue of the server."),
    ("complete", f"{_ITEMS}:complete", RUN, "Complete leased items."),
    ("retry", f"{_ITEMS}:retry", RUN, "Return leased items to the queue."),
    ("queues", "queues:app", RUN, "List, create, update, delete mailboxes."),
    ("classify", "work:classify", RUN, "Show how an error would be classified."),
    ("verify", "checks:verify", CHECK, "Check that no message was lost."),
    ("audit", "audit:app", CHECK, "List who did what, newest first."),
    ("doctor", "checks:doctor", CHECK, "Check for common problems."),
    ("alarms", "checks:alarms_app", CHECK, "Print Prometheus rules or create CloudWatch alarms."),
    ("export", "archive:export", CHECK, "Write letters to a file."),
    ("import", "archive:import_", CHECK, "Import letters from a file."),
    ("retention", "moves:retention_app", CHECK, "Delete finished letters after their retention."),
    ("completion", "app:completion", CHECK, "Print a completion script for your shell."),
)
_ALIASES: Final = {"replay": ("redrive",)}

_EPILOGUE: Final = (
    "Without a command: what is open now. Exit codes: 0 done, 1 unexpected error, "
    "2 usage or bad search, 3 not found, 4 conflict, 5 engine unavailable, 6 check "
    "failed, 130 interrupted."
)

NAMES: Final = tuple(name for name, *_ in _COMMANDS)


def build(words: Sequence[str] = ()) -> App:
    """
    Return the command line for these words; call its `meta`.

    Only commands among the words are imported; the others have one line of help.
    """
    is_general = not set(NAMES).intersection(words)
    app = App(
        name="dlq",
        help="The dead letter office: list failed messages, find the cause, replay them.",
        help_format="markdown",
        help_epilogue=_EPILOGUE if is_general else None,
        version=_version,
        group_parameters=Group("Options", sort_key=5),
    )
    for index, (name, path, group, line) in enumerate(_COMMANDS):
        app.command(
            path if path.startswith("deadletter.") else f"{__package__}.{path}",
            name=name,
            alias=_ALIASES.get(name, ()),
            group=group,
            help=None if name in words else line,
            sort_key=index,
        )
    for flag in ("--help", "--version"):
        app[flag].group = (GLOBAL,)
    app.default(_overview)
    app.meta.default(_launcher(app))
    app.meta.suppress_keyboard_interrupt = False  # run() turns it into an exit code
    return app


def _launcher(app: App) -> Any:
    def launch(
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
        url: Annotated[str | None, Parameter(group=GLOBAL)] = None,
        office: Annotated[str | None, Parameter(group=GLOBAL)] = None,
        server: Annotated[str | None, Parameter(group=GLOBAL)] = None,
        json: Annotated[bool, Parameter(group=GLOBAL, negative="", show_default=False)] = False,
        actor: Annotated[str | None, Parameter(group=GLOBAL)] = None,
    ) -> int:
        """
        The dead letter office.

        Args:
            url: The engine, such as sqlite:///shop.db. Default: DLQ_URL, `url` in
                deadletter.toml, or sqlite:///deadletter.db.
            office: The store of the letters, if it is not the engine. Default:
                DLQ_OFFICE or `office` in deadletter.toml.
            server: A server to use instead, such as http://127.0.0.1:8418. Default:
                DLQ_SERVER. The token is read from DLQ_TOKEN or the file
                DLQ_TOKEN_FILE.
            json: Print JSON: one document, or one line per entry of a list.
            actor: Your name in the audit. Default: you@host.
        """
        command, bound, extra = app.parse_args(tokens, exit_on_error=False, print_error=False)
        more: dict[str, object] = {}
        if "desk" in extra:
            from .desk import Desk  # noqa: PLC0415 -- help and completions do not need it

            more["desk"] = Desk(url=url, office=office, server=server, as_json=json, actor=actor)
        result = command(*bound.args, **bound.kwargs, **more)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return int(result or 0)

    return launch


async def _overview(*, desk: Annotated[Any, Parameter(parse=False)]) -> None:
    from .overview import overview  # noqa: PLC0415 -- help does not need it

    await overview(desk=desk)


async def completion(
    shell: Literal["bash", "zsh", "fish"],
    /,
    *,
    install: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    desk: Annotated[Any, Parameter(parse=False)],
) -> None:
    """
    Print a script that makes a shell complete `dlq`, or install it.

    Try it: source <(dlq completion bash)

    Args:
        shell: bash, zsh or fish.
        install: Install the script where the shell looks for completions.
    """
    app = build()
    if not install:
        print(app.generate_completion(shell=shell))  # noqa: T201 -- a script, not a message
        return
    path = app.install_completion(shell=shell)
    desk.tell(f"Installed in {path}. Open a new shell to use it.")


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 -- for --version only

    return f"dlq {version('deadletter')}"


_HELP: Final = frozenset({"--help", "-h"})


def run(words: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    escape_unencodable(sys.stdout, sys.stderr)
    with restored_streams():
        return _run(words)


def _run(words: Sequence[str]) -> int:
    try:
        app = build(words)
        _check_command(app, words)
        code = app.meta(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as ended:  # rich, which prints the help, exits on a broken pipe
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        return _reader_gone()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except CycloptsError as error:
        _print_error(_usage_text(error))
        return ExitCode.USAGE
    except DeadLetterError as error:
        _debug()
        _print_error(_error_text(error))
        return code_for(error)
    except Exception as error:  # noqa: BLE001 -- print a sentence instead of a traceback
        _debug()
        _print_error(
            f"unexpected error: {type(error).__name__}: {error} "
            "(DLQ_DEBUG=1 prints the traceback; please report it)"
        )
        return ExitCode.UNEXPECTED
    return int(code or 0)


def _check_command(app: App, words: Sequence[str]) -> None:
    """Raise ConfigError for an unknown command, which `--help` would hide."""
    if not _HELP.intersection(words):
        return
    without_help = [word for word in words if word not in _HELP]
    with suppress(CycloptsError):  # something is missing: the help shows what
        _, bound, _ = app.meta.parse_args(without_help, exit_on_error=False, print_error=False)
        try:
            app.parse_args(bound.args, exit_on_error=False, print_error=False)
        except UnusedCliTokensError as error:
            raise ConfigError(_usage_text(error)) from error


def _unknown_command(word: str) -> str:
    near = difflib.get_close_matches(word, NAMES, n=1)
    hint = f"did you mean `dlq {near[0]}`?" if near else "see `dlq --help`"
    return f"unknown command {word[:40]!r}; {hint}"


def _print_error(text: str) -> None:
    sys.stderr.write(f"dlq: {clean_lines(text)}\n")


def _debug() -> None:
    if os.environ.get("DLQ_DEBUG"):
        traceback.print_exc()


def _error_text(error: DeadLetterError) -> str:
    if not isinstance(error, QueryError) or not error.query:
        return str(error)
    # The pointer must stand under the token, so the text before it is measured as it
    # is displayed.
    before = clean(error.query[: error.at])
    shown = clean(error.query)
    return f"{error.text}\n  {shown}\n  {' ' * len(before)}^"


def _usage_text(error: CycloptsError) -> str:
    error.verbose = False
    chain = list(error.command_chain or ())
    if isinstance(error, UnusedCliTokensError) and not chain and error.unused_tokens:
        return _unknown_command(error.unused_tokens[0])
    text = str(error).strip()
    return f"{text} See `{' '.join(['dlq', *chain])} --help`."


def _reader_gone() -> int:
    # The reader has closed the pipe. What Python flushes at its end must not fail.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    return ExitCode.OK
