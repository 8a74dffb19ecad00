"""
The table of all commands.

Commands are imported when they run, so that `dlq --help` and completions are fast. The
table has the module and the help line of each command.
"""

import asyncio
import inspect
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, Final

from cyclopts import App, Group, Parameter

LOOK: Final = Group("Look", sort_key=1)
DECIDE: Final = Group("Decide", sort_key=2)
RUN: Final = Group("Run", sort_key=3)
CHECK: Final = Group("Check and keep", sort_key=4)
GLOBAL: Final = Group("Everywhere", sort_key=9)

_ITEMS: Final = "deadletter.queue_server.queue_commands"
_COMMANDS: Final = (
    ("list", "letters:list_", LOOK, "Search the dead letters, newest first."),
    ("groups", "groups:app", LOOK, "List problems: letters grouped by cause."),
    ("show", "letters:show", LOOK, "Show one letter and its whole story."),
    ("repro", "repro:repro", LOOK, "Write a failing test that reproduces a letter."),
    ("stats", "overview:stats", LOOK, "Count messages and letters."),
    ("outages", "outages:app", LOOK, "List outages; release mailboxes."),
    ("review", "moves:review", DECIDE, "Mark letters as reviewed."),
    ("note", "moves:note", DECIDE, "Add a note to letters."),
    ("replay", "replay:app", DECIDE, "Send letters back to their mailboxes."),
    ("edit", "edit:edit", DECIDE, "Edit the message of a letter."),
    ("close", "moves:close", DECIDE, "Close letters."),
    ("reopen", "moves:reopen", DECIDE, "Make letters pending again."),
    ("confirm", "moves:confirm", DECIDE, "Confirm that replayed messages were handled."),
    ("discard", "moves:discard", DECIDE, "Discard letters; `restore` undoes it."),
    ("restore", "moves:restore", DECIDE, "Restore discarded letters."),
    ("purge", "moves:purge", DECIDE, "Delete letters permanently."),
    ("work", "work:work", RUN, "Run the handlers of an App."),
    ("serve", "serve:serve", RUN, "Serve the HTTP API, the queue server and metrics."),
    ("drain", "drain:drain", RUN, "Import letters from a broker's own dead-letter queue."),
    ("send", "send:send", RUN, "Send a message."),
    ("tokens", "tokens:app", RUN, "Create, list, revoke tokens of the server."),
    ("produce", f"{_ITEMS}:produce", RUN, "Add an item to a queue of the server."),
    ("lease", f"{_ITEMS}:lease", RUN, "Lease items from a queue of the server."),
    ("complete", f"{_ITEMS}:complete", RUN, "Complete leased items."),
    ("retry", f"{_ITEMS}:retry", RUN, "Return leased items to the queue."),
    ("queues", "queues:app", RUN, "List, create, update, delete mailboxes."),
    ("classify", "classify:classify", RUN, "Show how an error would be classified."),
    ("verify", "checks:verify", CHECK, "Check that no message was lost."),
    ("audit", "audit:app", CHECK, "List who did what, newest first."),
    ("doctor", "checks:doctor", CHECK, "Check for common problems."),
    ("alarms", "alarms:app", CHECK, "Print Prometheus rules or create CloudWatch alarms."),
    ("export", "archive:export", CHECK, "Write letters to a file."),
    ("import", "archive:import_", CHECK, "Import letters from a file."),
    ("retention", "retention:app", CHECK, "Delete finished letters after their retention."),
    ("completion", "completion:completion", CHECK, "Print a completion script for your shell."),
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
    for index, (name, place, group, line) in enumerate(_COMMANDS):
        app.command(
            place if place.startswith("deadletter.") else f"{__package__}.{place}",
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
    app.meta.suppress_keyboard_interrupt = False  # ours to turn into an exit code
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
            from .desk import Desk  # noqa: PLC0415 -- help and completions need none

            more["desk"] = Desk(url=url, office=office, server=server, as_json=json, actor=actor)
        result = command(*bound.args, **bound.kwargs, **more)
        if inspect.iscoroutine(result):
            result = _run(result)
        return int(result or 0)

    return launch


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def _overview(*, desk: Annotated[Any, Parameter(parse=False)]) -> None:
    from .overview import overview  # noqa: PLC0415 -- help needs none of it

    await overview(desk=desk)


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 -- for --version only

    return f"dlq {version('deadletter')}"
