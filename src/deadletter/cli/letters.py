"""dlq list, dlq show: search letters, and show one with its story."""

import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.attempts import Attempt
from deadletter.core.campaign import Outcome, ReplayItem
from deadletter.core.errors import ConfigError
from deadletter.core.letter import OPEN, AuditEntry, LetterHead, State
from deadletter.core.message import Message
from deadletter.core.replay_rules import OUT
from deadletter.core.text import attempts_of, clean, clean_lines
from deadletter.intake.dialects import unmarked
from deadletter.office.letters_protocol import LetterCount, LetterDetails
from deadletter.office.view import Kind, LetterView, MessageView, Moment, OriginView, act_text
from deadletter.wiring.foreign import Ways

from .desk import AtDesk, Desk
from .edit import difference_lines
from .options import AtMost, Flag, letter_id
from .replay_status import OUTCOMES
from .ui import (
    Name,
    ago,
    cell,
    error_of,
    firm_column,
    indented,
    local,
    many,
    name_column,
    number,
    number_column,
    pages,
    short,
    show_next_page,
    show_progress_of_search,
    size,
    span,
    state,
    table,
    text_column,
    time_zone,
)

_NARROW: Final = 100
_SHOWN: Final = 25  # letters, unless --limit is given


async def list_(*query: str, limit: AtMost = None, after: str | None = None, desk: AtDesk) -> None:
    """
    Search the dead letters, newest first.

    Fields: is, has, id, source, partition, message, key, business_key, reason,
    trouble, category, code, error, text, group, attempts, replays, version,
    consumer, trace, size, age, since, until, dead, during, first,
    header.NAME, body.PATH.

    - dlq list is:pending
    - dlq list 'error:TimeoutError age:<2d !has:trace'
    - dlq list 'source:[orders,payments] body.amount:>100 refused'

    If there are more, standard error names the command that continues the list.

    Args:
        query: A search (default: all letters). Quote it if it contains < > ! * or
            brackets.
        limit: The most entries to show (default: 25; with --json, all).
        after: Continue a list: the value that the earlier list printed at its end.
    """
    if desk.as_json:
        after = await _stream(desk, query, limit, after)
    else:
        after = await _show(desk, query, limit or _SHOWN, after)
    show_next_page(desk, ["list", *query], limit, after)


async def _show(desk: Desk, query: Sequence[str], limit: int, after: str | None) -> str | None:
    """Print a table of letters; return the cursor of the next page, if there is one."""
    async with desk.office() as office:
        words = " ".join(query)
        page = await office.letters.search(words, limit=limit, after=after)
        total = LetterCount(len(page.heads))
        if after is not None or page.after is not None:
            total = await office.letters.count(words)
    if page.heads:
        desk.show(_letters(page.heads, desk.clock.now(), desk.out.width))
        desk.tell(_total(len(page.heads), total), "dim")
        show = f"{desk.dlq} show {short(page.heads[0].id)}"
        desk.hint(f"Show the whole story of a letter: {show}")
    else:
        desk.tell(_nothing(query, cut=page.after is not None))
    show_progress_of_search(desk, page)
    return page.after


async def _stream(
    desk: Desk, query: Sequence[str], limit: int | None, after: str | None
) -> str | None:
    """Print letters as JSON while they are found; return the next cursor, if any."""
    async with desk.office() as office:

        async def read(size: int, after: str | None) -> tuple[Sequence[LetterHead], str | None]:
            page = await office.letters.search(" ".join(query), limit=size, after=after)
            return page.heads, page.after

        async for heads, ended in pages(read, limit, after):
            for head in heads:
                desk.document(head_fields(head))
            after = ended
    return after


def head_fields(head: LetterHead) -> dict[str, Any]:
    """Return the head of a letter as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(head)
    fields["category"] = head.category
    return fields


def _letters(heads: tuple[LetterHead, ...], now: datetime, width: int) -> Table:
    shown = table()
    firm_column(shown, "id")
    firm_column(shown, "state")
    name_column(shown, "source", most=18 if width >= _NARROW else 12)
    text_column(shown, "error")
    if width >= _NARROW:
        number_column(shown, "attempts")
        number_column(shown, "replays")
    firm_column(shown, "dead since")
    for head in heads:
        cells: list[RenderableType] = [
            cell(short(head.id, width), "cyan"),
            state(head.state),
            Name(head.source),
            cell(error_of(head)),
        ]
        if width >= _NARROW:
            attempts = number(head.attempts) if head.attempts else cell("unknown", "dim")
            cells += [attempts, number(head.replays)]
        shown.add_row(*cells, cell(ago(head.dead_at, now)))
    return shown


def _total(shown: int, found: LetterCount) -> str:
    if found.is_all:
        return f"Showing {shown:,} of {found.letters:,}."
    return f"Showing {shown:,} of more than {found.letters:,}."


def _nothing(query: Sequence[str], *, cut: bool) -> str:
    if cut:
        return "Nothing found yet; not all letters have been searched."
    if query:
        return f"No letter matches {' '.join(query)}"
    return "No dead letters."


MOST_STACK: Final = 40  # lines
MOST_CHANGES: Final = 40  # lines


def letter_page(story: LetterDetails, now: datetime, *, stacks: bool) -> Iterator[RenderableType]:
    """Yield the parts of the page of a letter, from top to bottom."""
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
        lines = difference_lines(letter.differences, most=MOST_CHANGES)
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

    fact("error", error_of(head))
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


def _timeline(story: LetterDetails) -> Table:
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
        line.add_row("", Text("… and more entries: see the audit", style="dim"))
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
        part for part in (attempt.worker, attempt.version and f"version {attempt.version}") if part
    )
    if by:
        text.append(f" ({clean(by)})", style="dim")
    return text


def _replay(moment: Moment, item: ReplayItem) -> Text:
    name = f"replay {item.generation}"
    if moment.kind is Kind.OUTCOME:
        outcome, style = OUTCOMES[Outcome(moment.text)]
        why = f" ({clean(item.why)})" if item.why else ""
        line = f"{name if item.generation else 'replay'} {outcome}{why}"
        return Text(line, style=style)
    text = Text(clean(item.actor), style="cyan")
    text.append(f" sent it back to {clean(moment.text)}", style="default")
    if item.reason:
        text.append(f", because: {clean(item.reason)}", style="default")
    text.append(f" ({name}, {clean(item.campaign)})", style="dim")
    if moment.given_up:
        text.append(": sent again without waiting for its outcome", style="yellow")
    elif item.outcome in OUT:
        text.append(f": {OUTCOMES[item.outcome][0]}", style="yellow")
    return text


def _act(entry: AuditEntry) -> Text:
    text = Text(clean(entry.actor), style="cyan")
    text.append(f" {clean(act_text(entry))}", style="default")
    if entry.reason:
        text.append(f", because: {clean(entry.reason)}", style="default")
    return text


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
    Return the next commands to type; each begins with `dlq`.

    A drained letter is replayed through its server. `ways` knows the names of the
    servers in the settings; another server has to be named with --through.
    """
    name = short(letter.head.id)
    if letter.head.state in OPEN:
        replay = f"replay {name}"
        server = letter.drained_from
        if server is not None and ways is not None and ways.way_of(server) is None:
            replay += f" --through {clean(server) or 'SERVER'}"
        # A message that does not name its original queue needs a target.
        origin = letter.origin
        if server is not None and origin and origin.place == letter.head.source:
            replay += " --to QUEUE"
        steps = [f"{dlq} {verb}" for verb in (replay, f"review {name}", f"discard {name}")]
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


async def show(
    letter: str,
    /,
    *,
    reveal_: Annotated[Flag, Parameter(name="--reveal")] = False,
    raw: Flag = False,
    original: Flag = False,
    capture: Flag = False,
    stacks: Flag = False,
    desk: AtDesk,
) -> None:
    """
    Show one letter: its message, attempts, errors, and everything done to it.

    Args:
        letter: The id of the letter, or at least the first 6 characters of it.
        reveal_: Show masked secrets in headers and body; recorded in the audit.
        raw: Write only the body, unchanged, to a file or a pipe; recorded in the
            audit.
        original: With --raw, write the original body of an edited letter.
        capture: Show the header `dlq-found` of a drained letter, which holds the data
            needed to send it back.
        stacks: Show the stack trace of every attempt (default: only of the last).
    """
    if raw and sys.stdout.isatty():
        raise ConfigError(
            "--raw writes bytes that may contain control sequences of the terminal: "
            "redirect them, as in `dlq show ID --raw > body`"
        )
    by, letter = desk.by(), letter_id(letter)
    async with desk.office() as office:
        if raw:
            _, message = await office.letters.message(letter, by, original=original)
            sys.stdout.buffer.write(message.body)
            sys.stdout.buffer.flush()
            return
        found = await office.letters.details(letter, by, reveal=reveal_, capture=capture)
    if desk.as_json:
        desk.document(_fields(found, capture=capture))
        return
    for part in letter_page(found, desk.clock.now(), stacks=stacks):
        desk.show(part)
    desk.show(Text())
    ways = desk.ways if desk.server is None else None
    desk.tell(next_steps(found.view, desk.dlq, ways), "dim")


def _fields(found: LetterDetails, *, capture: bool) -> dict[str, Any]:
    view = found.view
    fields = head_fields(view.head)
    fields["message"] = _message(view.message, found.message, capture=capture)
    if view.original is not None:
        fields["original"] = _message(view.original, found.original, capture=capture)
    if view.origin is not None:
        fields["origin"] = msgspec.to_builtins(view.origin)
    fields["position"] = view.position
    fields["frame"] = view.frame
    fields["first_received_at"] = view.first_received_at
    fields["story"] = msgspec.to_builtins(found.moments)
    return fields


def _message(view: MessageView, revealed: Message | None, *, capture: bool) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(view)
    if revealed is not None:
        revealed = revealed if capture else unmarked(revealed)
        fields["body"] = b64encode(revealed.body).decode()
        fields["raw_headers"] = [
            [name, b64encode(value).decode()] for name, value in revealed.headers
        ]
    return fields
