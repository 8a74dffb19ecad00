"""
All commands by name.

They are imported when they are used, so that `dlq --help` and completions are
quick: here stands only where each is, and the line that help prints for it.
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

_COMMANDS: Final = (
    ("list", "letters:list_", LOOK, "Search the dead letters, newest first."),
    ("groups", "groups:app", LOOK, "What broke, by cause."),
    ("show", "show:show", LOOK, "Tell one letter's whole story."),
    ("repro", "repro:repro", LOOK, "Write a test that fails as a letter did."),
    ("stats", "stats:stats", LOOK, "Count what is where."),
    ("outages", "outages:app", LOOK, "List when brakes were open; go on."),
    ("review", "moves:review", DECIDE, "Say that you have looked at letters."),
    ("note", "moves:note", DECIDE, "Write a note on letters."),
    ("replay", "replay:app", DECIDE, "Send letters back to be tried again."),
    ("edit", "edit:edit", DECIDE, "Mend a letter's message."),
    ("close", "moves:close", DECIDE, "Say that letters are done with."),
    ("reopen", "moves:reopen", DECIDE, "Make letters pending again."),
    ("confirm", "moves:confirm", DECIDE, "Say that messages sent back were handled."),
    ("discard", "moves:discard", DECIDE, "Throw letters away, for now."),
    ("restore", "moves:restore", DECIDE, "Take discarded letters out of the bin."),
    ("purge", "moves:purge", DECIDE, "Delete letters for good."),
    ("work", "work:work", RUN, "Run the handlers of an App."),
    ("serve", "serve:serve", RUN, "Answer over HTTP: API, queue server, metrics."),
    ("drain", "drain:drain", RUN, "Take in the dead letters of others."),
    ("send", "send:send", RUN, "Send a message."),
    ("tokens", "tokens:app", RUN, "Create, list, revoke tokens of the server."),
    ("produce", "items:produce", RUN, "Put an item into a queue of the server."),
    ("lease", "items:lease", RUN, "Borrow items of a queue of the server."),
    ("complete", "items:complete", RUN, "Say that leased items are done with."),
    ("retry", "items:retry", RUN, "Give leased items back."),
    ("queues", "queues:app", RUN, "List, create, update, delete mailboxes."),
    ("classify", "classify:classify", RUN, "Say what an error would mean."),
    ("verify", "checks:verify", CHECK, "Prove that nothing was lost."),
    ("audit", "audit:app", CHECK, "List who did what, newest first."),
    ("doctor", "checks:doctor", CHECK, "Look at what tends to go wrong."),
    ("alarms", "alarms:app", CHECK, "Have Prometheus or CloudWatch watch."),
    ("export", "archive:export", CHECK, "Write letters into a file."),
    ("import", "archive:import_", CHECK, "Take in letters from a file."),
    ("retention", "retention:app", CHECK, "Let go of finished letters."),
    ("completion", "completion:completion", CHECK, "Complete commands in the shell."),
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
    The command line for these words, ready to be called through its `meta`.

    A command that is among the words speaks for itself, at length; of the others
    only one line is known.
    """
    is_general = not set(NAMES).intersection(words)
    app = App(
        name="dlq",
        help="The dead letter office: see what died, find out why, send it back.",
        help_format="markdown",
        help_epilogue=_EPILOGUE if is_general else None,
        version=_version,
        group_parameters=Group("Options", sort_key=5),
    )
    for index, (name, place, group, line) in enumerate(_COMMANDS):
        app.command(
            f"{__package__}.{place}",
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
        json: Annotated[
            bool, Parameter(group=GLOBAL, negative="", show_default=False)
        ] = False,
        actor: Annotated[str | None, Parameter(group=GLOBAL)] = None,
    ) -> int:
        """
        The dead letter office.

        Args:
            url: The engine, such as sqlite:///shop.db. Otherwise DLQ_URL, `url` in
                deadletter.toml, or sqlite:///deadletter.db.
            office: Where the letters are, if not in the engine itself. Otherwise
                DLQ_OFFICE or `office` in deadletter.toml.
            server: A server to ask instead, such as http://127.0.0.1:8418. Otherwise
                DLQ_SERVER. Your token is in DLQ_TOKEN, or in the file that
                DLQ_TOKEN_FILE names.
            json: Answer in JSON: one document, or one line each for lists.
            actor: Who does this, for the audit. Otherwise you@host.
        """
        command, bound, extra = app.parse_args(
            tokens, exit_on_error=False, print_error=False
        )
        more: dict[str, object] = {}
        if "desk" in extra:
            from .desk import Desk  # noqa: PLC0415 -- help and completions need none

            more["desk"] = Desk(
                url=url, office=office, server=server, as_json=json, actor=actor
            )
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
