"""How a letter's story reads on a terminal."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.assembly.foreign import Ways
from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.counts import attempts_of
from deadletter.core.letter import OPEN, AuditEntry, State
from deadletter.core.replaying import OUT
from deadletter.core.safe import clean, clean_lines
from deadletter.office.story import Kind, Moment
from deadletter.office.view import LetterView, OriginView

from .campaigns import OUTCOMES
from .edit import told as changed
from .office import Looked
from .tables import error_of, indented, short, state
from .times import ago, local, many, size, span, time_zone

MOST_STACK: Final = 40  # lines
MOST_CHANGES: Final = 40  # lines
_MOVED: Final[dict[str, str]] = {
    State.REVIEWED: "reviewed it",
    State.CLOSED: "closed it",
    State.PENDING: "opened it again",
    State.DISCARDED: "discarded it",
    State.QUARANTINED: "quarantined it",
    State.REPLAYING: "sent it back",
    State.REPLAYED: "saw it handled",
}
_ACTS: Final = {
    "note": "noted",
    "edit": "edited it",
    "reveal": "looked at what is masked",
    "import": "imported it",
    "purge": "purged it",
    "replay": "replayed it",
}


def told(story: Looked, now: datetime, *, stacks: bool) -> Iterator[RenderableType]:
    """The parts of a letter's page, top to bottom."""
    letter = story.view
    yield _title(letter)
    yield indented(_facts(letter, now))
    if letter.origin is not None:
        yield _heading(f"Found in {clean(letter.origin.place)}")
        yield indented(_origin(letter.origin))
    yield _heading("Body")
    yield _lines(letter.message.preview)
    if letter.message.headers:
        yield _heading("Headers")
        yield _lines("\n".join(letter.message.headers))
    if letter.original is not None:
        yield _heading("Edited since it died")
        lines = changed(letter.differences, most=MOST_CHANGES)
        yield from (indented(line) for line in lines)
    yield _heading(f"Story (times in {time_zone(now)})")
    yield indented(_timeline(story))
    yield from _stacks(letter, every=stacks)


def _title(letter: LetterView) -> Text:
    title = Text("Letter ", style="bold")
    title.append(letter.head.id, style="bold cyan")
    title.append("  ")
    title.append_text(state(letter.head.state))
    return title


def _facts(letter: LetterView, now: datetime) -> Table:
    head, message = letter.head, letter.message
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")

    def fact(name: str, *parts: str) -> None:
        text = " · ".join(clean(part) for part in parts if part)
        if text:
            facts.add_row(name, Text(text))

    fact("what broke", error_of(head))
    fact("kind", head.trouble, head.code, head.reason_text or head.reason)
    fact(
        "died",
        f"{ago(head.dead_at, now)} in {head.source}",
        attempts_of(head.attempts),
        f"replayed {many(head.replays, 'time')}" if head.replays else "",
    )
    fact(
        "handler",
        head.consumer,
        f"version {head.version}" if head.version else "",
        "" if letter.frame == head.consumer else letter.frame.partition("#")[0],
    )
    fact(
        "message",
        message.id,
        size(head.size),
        message.content_type or "",
        f"key {message.key}" if message.key else "",
    )
    fact("idempotency", message.idempotency_key or "")
    fact("expires", local(message.expires_at) if message.expires_at else "")
    fact("reply to", message.reply_to or "")
    fact("position", " ".join(filter(None, [head.partition, letter.position])))
    fact("trace", head.trace_id or "")
    fact("group", head.fingerprint)
    fact("conflict", "its message id was reused with another body" * head.conflict)
    return facts


def _origin(origin: OriginView) -> Table:
    fields = Table.grid(padding=(0, 2, 0, 0))
    fields.add_column(style="dim", no_wrap=True)
    fields.add_column(overflow="fold")
    fields.add_row("dialect", Text(clean(origin.dialect) or "unknown"))
    if origin.claim:
        fields.add_row("claim", Text(clean(origin.claim)))
    for name, text in origin.fields.items():
        fields.add_row(Text(clean(name)), Text(clean_lines(text)))
    return fields


def _timeline(story: Looked) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(style="dim", no_wrap=True)
    line.add_column(overflow="fold")
    day = ""
    for moment in story.moments:
        stamp = local(moment.at)
        today, clock = stamp[:10], stamp[11:]
        line.add_row(stamp if today != day else f"{clock:>19}", _moment(moment))
        day = today
    if story.left_out:
        line.add_row("", Text("… and more acts than fit here", style="dim"))
    return line


def _moment(moment: Moment) -> Text:
    if moment.attempt is not None:
        return _attempt(moment.attempt)
    if moment.act is not None:
        return _act(moment.act)
    if moment.replay is not None:
        return _replay(moment, moment.replay)
    match moment.kind:
        case Kind.SENT:
            return Text(f"sent to {clean(moment.text)}")
        case Kind.RECEIVED:
            return Text("received for the first time")
        case _:
            text = f"died: {clean(moment.text)}" if moment.text else "died"
            return Text(text, style="red")


def _attempt(attempt: Attempt) -> Text:
    if attempt.outcome == "cut":
        return Text(f"… {clean(attempt.text)}", style="dim")
    replay = f"replay {attempt.generation}, " if attempt.generation else ""
    number = f" {attempt.number}" if attempt.number else ""
    text = Text(f"{replay}attempt{number} ")
    text.append(clean(attempt.outcome), style="red")
    if attempt.seconds:
        text.append(f" after {span(attempt.seconds)}", style="dim")
    error = attempt.error_type.rpartition(".")[2]
    what = ": ".join(part for part in (error, attempt.text) if part)
    if what:
        text.append(f": {clean(what)}")
    by = " ".join(
        part
        for part in (attempt.worker, attempt.version and f"version {attempt.version}")
        if part
    )
    if by:
        text.append(f" ({clean(by)})", style="dim")
    return text


def _replay(moment: Moment, item: ReplayItem) -> Text:
    name = f"replay {item.generation}"
    if moment.kind is Kind.OUTCOME:
        said, style = OUTCOMES[Outcome(moment.text)]
        why = f" ({clean(item.why)})" if item.why else ""
        whole = f"{name if item.generation else 'replay'} {said}{why}"
        return Text(whole, style=style)
    text = Text(clean(item.actor), style="cyan")
    text.append(f" sent it back to {clean(moment.text)}", style="default")
    if item.reason:
        text.append(f", because: {clean(item.reason)}", style="default")
    text.append(f" ({name}, {clean(item.campaign)})", style="dim")
    if moment.given_up:
        text.append(": its outcome was not waited for", style="yellow")
    elif item.outcome in OUT:
        text.append(f": {OUTCOMES[item.outcome][0]}", style="yellow")
    return text


def _act(entry: AuditEntry) -> Text:
    text = Text(clean(entry.actor), style="cyan")
    text.append(f" {_deed(entry)}", style="default")
    if entry.reason:
        text.append(f", because: {clean(entry.reason)}", style="default")
    return text


def _deed(entry: AuditEntry) -> str:
    if entry.action == "note":
        return f"noted: {clean(entry.detail)}"
    if entry.action == "move":
        new = entry.detail.rpartition(" ")[2]
        return _MOVED.get(new, clean(entry.detail))
    deed = _ACTS.get(entry.action, clean(entry.action))
    return f"{deed} ({clean(entry.detail)})" if entry.detail else deed


def _stacks(letter: LetterView, *, every: bool) -> Iterator[RenderableType]:
    with_stack = [attempt for attempt in letter.attempts if attempt.stack]
    for attempt in with_stack if every else with_stack[-1:]:
        which = f"attempt {attempt.number}" if attempt.number else "the last attempt"
        yield _heading(f"Stack of {which}")
        lines = clean_lines(attempt.stack).rstrip("\n").split("\n")
        shown = lines[-MOST_STACK:]
        if len(lines) > MOST_STACK:
            shown.insert(0, f"… {len(lines) - MOST_STACK} lines above")
        yield _lines("\n".join(shown))


def next_steps(letter: LetterView, dlq: str, ways: Ways | None = None) -> str:
    """
    What to type next, with commands that begin with `dlq`.

    A letter that was drained goes back through its server: of those here, `ways`
    knows the name.
    """
    name = short(letter.head.id)
    if letter.head.state in OPEN:
        replay = f"replay {name}"
        server = letter.drained_from
        if server is not None and ways is not None and ways.way_of(server) is None:
            replay += f" --through {clean(server) or 'SERVER'}"
        # What does not say where it came from goes only where somebody says.
        origin = letter.origin
        if server is not None and origin and origin.place == letter.head.source:
            replay += " --to QUEUE"
        steps = [
            f"{dlq} {verb}" for verb in (replay, f"review {name}", f"discard {name}")
        ]
        text = f"Next: {' · '.join(steps)}"
    elif letter.head.state is State.DISCARDED:
        text = f"Next: {dlq} restore {name} · {dlq} purge {name}"
    elif letter.head.state is State.REPLAYING:
        steps = [f"{dlq} replay status", f"{dlq} show {name}"]
        text = f"Its copy has no outcome yet. Next: {' · '.join(steps)}"
    else:
        text = f"Next: {dlq} reopen {name}"
    return text


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _lines(lines: str) -> Padding:
    return indented(Text(lines, overflow="fold"))
