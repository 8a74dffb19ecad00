"""dlq repair: make the same change to the bodies of many letters."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from deadletter.core.errors import ConfigError, Conflict
from deadletter.core.letter import By
from deadletter.core.patch import Inexpressible, Patch, make_patch, parse_patch
from deadletter.office.office_protocol import OfficeProtocol
from deadletter.office.repair import WHY_NOT, RepairPlan, RepairVerdict
from deadletter.office.verbs import Moved

from .app import ExitCode
from .desk import AtDesk, Desk
from .edit import difference_lines
from .options import AtMost, Flag, FreeText, Reason, Yes, choose, letter_id, read_body
from .ui import ask_to_confirm, many, short, through


async def repair(
    *letters: str,
    patch: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    was: str | None = None,
    like: str | None = None,
    undo: Flag = False,
    dry_run: Flag = False,
    text: FreeText = False,
    limit: AtMost = None,
    reason: Reason = "",
    yes: Yes = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Make the same change to the bodies of many letters, after showing what it would do.

    The change is a JSON Merge Patch: members to set, and null for members to remove.
    Letters that it does not fit are left as they are and counted by reason. Each letter
    keeps its original message. Repeating a repair changes nothing.

    Args:
        letters: Ids, or a search.
        patch: The change, as JSON or as the name of a file; - means standard input.
        was: Change only bodies that have these values, as JSON or the name of a file.
        like: Make the change that was made to this letter by editing it.
        undo: Give the letters their original messages back instead.
        dry_run: Only show what would change.
        text: Allow words without a field, which match the text of letters.
        limit: The most letters to look at.
        reason: Why; required to change letters, and recorded in the audit.
        yes: Do not ask for confirmation.
    """
    _check_options(patch, was, like, undo=undo, dry_run=dry_run, reason=reason)
    by = desk.by(reason)
    async with desk.office() as office:
        change = None if undo else await _change(office, patch, was, like, by)
        chosen = await choose(office.letters, letters, text=text, limit=limit)
        if change is None:
            count = len(chosen.ids)
            question = f"restore the originals of {many(count, 'letter')}"
            ask_to_confirm(desk, question, yes=yes, count=count)
            with through(desk, "being restored", chosen.ids) as ids:
                result = await office.repairs.undo(ids, by)
            return _report(desk, result, "restored")
        plan = await office.repairs.plan(chosen.ids, change)
        if dry_run or not desk.as_json:
            _show(desk, plan)
        if dry_run:
            return ExitCode.OK
        if not plan.changes:
            raise Conflict("the change fits none of these letters: nothing was repaired")
        ask_to_confirm(desk, f"repair {many(plan.changes, 'letter')}", yes=yes, count=plan.changes)
        with through(desk, "being repaired", chosen.ids) as ids:
            result = await office.repairs.apply(ids, change, by)
    return _report(desk, result, "repaired")


def _check_options(
    patch: str | None, was: str | None, like: str | None, *, undo: bool, dry_run: bool, reason: str
) -> None:
    if undo and (patch or was or like or dry_run):
        raise ConfigError("--undo cannot be combined with --patch, --was, --like or --dry-run")
    if not undo and (patch is None) == (like is None):
        raise ConfigError("give the change either with --patch or with --like")
    if like is not None and was is not None:
        raise ConfigError("--was cannot be combined with --like, which knows what was there")
    if not dry_run and not reason.strip():
        raise ConfigError("a repair requires a reason, got none: give it with --reason")


async def _change(
    office: OfficeProtocol, patch: str | None, was: str | None, like: str | None, by: By
) -> Patch:
    if like is None:
        return parse_patch(_given(patch or ""), "" if was is None else _given(was))
    name = letter_id(like)
    head, now = await office.letters.message(name, by, shown=False)
    _, before = await office.letters.message(head.id, by, original=True, shown=False)
    try:
        return make_patch(before.body, now.body)
    except Inexpressible as error:
        raise ConfigError(
            f"the edit of letter {short(head.id)} cannot be repeated as a patch: {error}"
        ) from None


def _given(text: str) -> str:
    """Return JSON that was given as such, or in a file."""
    if text.lstrip()[:1] == "{":
        return text
    body = read_body(Path(text))
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{text} is not UTF-8 text") from None


def _show(desk: Desk, plan: RepairPlan) -> None:
    if desk.as_json:
        desk.document(plan)
        return
    for sample in plan.samples:
        desk.show(Text(f"Letter {short(sample.letter_id)}", style="bold"))
        for line in difference_lines(sample.differences, most=20):
            desk.show(line)
    left = plan.changes - len(plan.samples)
    if plan.samples and left > 0:
        desk.hint(f"… and {many(left, 'more letter')}")
    desk.tell(f"{many(plan.changes, 'letter')} of {plan.total:,} would change.")
    for verdict, count in plan.verdicts.items():
        if verdict is not RepairVerdict.CHANGE:
            names = ", ".join(short(id_) for id_ in plan.letters.get(verdict, ())[:3])
            more = f" ({names}{', …' if count > 3 else ''})" if names else ""
            desk.tell(f"{many(count, 'letter')} left alone: {WHY_NOT[verdict]}{more}.", "yellow")


def _report(desk: Desk, result: Moved, done: str) -> ExitCode:
    if desk.as_json:
        desk.document(result)
        return ExitCode.OK if result.moved else ExitCode.CONFLICT
    if result.moved:
        desk.tell(f"{many(result.moved, 'letter')} {done}.")
    for why, count in sorted(result.skipped.items()):
        desk.tell(f"{many(count, 'letter')} left alone: {why}.", "yellow")
    if not result.moved:
        raise Conflict(f"nothing was {done}")
    return ExitCode.OK
