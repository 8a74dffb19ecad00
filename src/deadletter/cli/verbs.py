"""
dlq review, close, reopen, discard, restore, purge: one command for each verb of letters.

The commands are made from `deadletter.office.verbs`. `app` names them as attributes of this
module, so that they are made when they run.
"""

from collections.abc import Awaitable, Callable, Iterable
from inspect import Parameter, Signature
from typing import Any, Final, TypeAlias

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import State
from deadletter.office.letters_protocol import LettersProtocol
from deadletter.office.verbs import BY_NAME, VERBS, Moved, Verb

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import AtMost, Flag, FreeText, Reason, Yes, choose
from .ui import ask_to_confirm, many, through

Command: TypeAlias = Callable[..., Awaitable[ExitCode]]
Act: TypeAlias = Callable[[LettersProtocol, Iterable[str]], Awaitable[Moved]]

_WAITING: Final = f"is:{State.REPLAYING}"


def __getattr__(name: str) -> Command:
    """Return the command of a verb, by the name of the verb."""
    if name not in BY_NAME:
        raise AttributeError(f"there is no verb {name}")
    return command_of(BY_NAME[name])


def command_of(verb: Verb) -> Command:
    """Return the command of a verb, with its options and its help."""

    async def command(
        *letters: str,
        desk: Desk,
        text: bool = False,
        limit: int | None = None,
        reason: str = "",
        unconfirmed: bool = False,
        yes: bool = False,
    ) -> ExitCode:
        if verb.needs_reason and not reason.strip():
            raise ConfigError(f"{verb.name} requires a reason, got none: give it with --reason")
        if verb.takes_waiting_search and _WAITING in " ".join(letters).split():
            unconfirmed = True

        async def act(some: LettersProtocol, ids: Iterable[str]) -> Moved:
            return await some.act(verb, ids, desk.by(reason), unconfirmed=unconfirmed)

        return await change(
            desk, letters, act, verb.done, text=text, limit=limit, danger=verb.danger, yes=yes
        )

    options = _options(verb)
    arguments = [
        Parameter("letters", Parameter.VAR_POSITIONAL, annotation=str),
        *(_option(name, kind, default) for name, kind, default, _ in options),
        Parameter("desk", Parameter.KEYWORD_ONLY, annotation=AtDesk),
    ]
    described: Any = command
    described.__name__ = verb.name
    described.__signature__ = Signature(arguments, return_annotation=ExitCode)
    described.__annotations__ = {one.name: one.annotation for one in arguments}
    described.__doc__ = "\n".join(
        [
            f"{verb.line}\n\n{verb.help.removeprefix(verb.line).strip()}\n\nArgs:",
            "    letters: Ids, or a search.",
            *(f"    {name}: {meaning}" for name, _, _, meaning in options),
        ]
    )
    return command


def _option(name: str, kind: Any, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _options(verb: Verb) -> list[tuple[str, Any, object, str]]:
    """Return the name, type, default and meaning of each option of a verb."""
    required = "required, and " if verb.needs_reason else ""
    options: list[tuple[str, Any, object, str]] = [
        ("reason", Reason, "", f"{verb.reason}; {required}recorded in the audit.")
    ]
    if verb.takes_unconfirmed:
        meaning = f"Also {verb.name} letters that wait for the outcome of a replay."
        meaning += f" {verb.late_outcome}"
        if verb.takes_waiting_search:
            meaning += f" The search {_WAITING} implies this."
        options.append(("unconfirmed", Flag, False, meaning))
    options += [
        ("text", FreeText, False, "Allow words without a field, which match the text of letters."),
        ("limit", AtMost, None, "The most letters to change."),
    ]
    if verb.danger:
        options.append(("yes", Yes, False, "Do not ask for confirmation."))
    return options


async def change(
    desk: Desk,
    words: tuple[str, ...],
    act: Act,
    done: str,
    *,
    text: bool,
    limit: int | None,
    danger: str = "",
    yes: bool = False,
) -> ExitCode:
    """Change the letters that the words of a command select, and report what was `done`."""
    async with desk.office() as office:
        chosen = await choose(office.letters, words, text=text, limit=limit)
        count = len(chosen.ids)
        if danger:
            ask_to_confirm(desk, danger.format(many(count, "letter")), yes=yes, count=count)
        with through(desk, f"being {done}", chosen.ids) as ids:
            result = await act(office.letters, ids)
    if desk.as_json:
        desk.document(result)
    else:
        _report(desk, result, done)
        if chosen.more:
            desk.hint(f"The limit of {count:,} was reached; there may be more.")
    if result.moved == 0:
        if desk.as_json:
            return ExitCode.CONFLICT
        raise Conflict(f"nothing was {done}")
    return ExitCode.OK


def _report(desk: Desk, result: Moved, done: str) -> None:
    if result.moved:
        desk.tell(f"{many(result.moved, 'letter')} {done}.")
    for why, count in result.skipped.items():
        desk.tell(f"{many(count, 'letter')} skipped: {why}.", "yellow")
    if f"is {State.REPLAYING}" in result.skipped:
        names = ", ".join(f"`{verb.name}`" for verb in VERBS if verb.takes_unconfirmed)
        desk.warn(
            f"A replay has sent letters that have no outcome yet. {names} and `replay`"
            " include them with --unconfirmed."
        )
