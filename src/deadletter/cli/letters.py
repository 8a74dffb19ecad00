"""dlq list: what died, and of what."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import RenderableType
from rich.table import Table

from deadletter.core.letter import LetterHead
from deadletter.office.letters import LetterCount

from .desk import AtDesk, Desk
from .options import AtMost
from .paging import pages, tell_how_far, tell_of_more
from .tables import (
    Name,
    cell,
    error_of,
    firm_column,
    name_column,
    number,
    number_column,
    short,
    state,
    table,
    text_column,
)
from .times import ago

_NARROW: Final = 100
_SHOWN: Final = 25  # letters, unless somebody says how many


async def list_(
    *query: str, limit: AtMost = None, after: str | None = None, desk: AtDesk
) -> None:
    """
    Search the dead letters, newest first.

    Fields: is, has, id, source, partition, message, key, business_key, reason,
    trouble, category, code, error, text, group, attempts, replays, version,
    consumer, trace, size, age, since, until, dead, first, header.NAME,
    body.PATH.

    - dlq list is:pending
    - dlq list 'error:TimeoutError age:<2d !has:trace'
    - dlq list 'source:[orders,payments] body.amount:>100 refused'

    Where there is more, standard error says how to go on.

    Args:
        query: In the search language; nothing is everything. Put it in quotes if
            it holds < > ! * or brackets.
        limit: How many to show. Otherwise 25; with --json, all of them.
        after: Where an earlier list ended, to go on from there.
    """
    if desk.as_json:
        after = await _stream(desk, query, limit, after)
    else:
        after = await _show(desk, query, limit or _SHOWN, after)
    tell_of_more(desk, ["list", *query], limit, after)


async def _show(
    desk: Desk, query: Sequence[str], limit: int, after: str | None
) -> str | None:
    """A table of so many letters; where it ended, if there is more."""
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
        desk.hint(f"{show} tells a letter's whole story.")
    else:
        desk.tell(_nothing(query, cut=page.after is not None))
    tell_how_far(desk, page)
    return page.after


async def _stream(
    desk: Desk, query: Sequence[str], limit: int | None, after: str | None
) -> str | None:
    """Letters as they are found, up to `limit`; where it ended, if there is more."""
    async with desk.office() as office:

        async def read(
            size: int, after: str | None
        ) -> tuple[Sequence[LetterHead], str | None]:
            page = await office.letters.search(" ".join(query), limit=size, after=after)
            return page.heads, page.after

        async for heads, ended in pages(read, limit, after):
            for head in heads:
                desk.document(head_fields(head))
            after = ended
    return after


def head_fields(head: LetterHead) -> dict[str, Any]:
    """A letter's head as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(head)
    fields["category"] = head.category
    return fields


def _letters(heads: tuple[LetterHead, ...], now: datetime, width: int) -> Table:
    shown = table()
    firm_column(shown, "id")
    firm_column(shown, "state")
    name_column(shown, "source", most=18 if width >= _NARROW else 12)
    text_column(shown, "what broke")
    if width >= _NARROW:
        number_column(shown, "tries")
        number_column(shown, "replays")
    firm_column(shown, "died")
    for head in heads:
        cells: list[RenderableType] = [
            cell(short(head.id, width), "cyan"),
            state(head.state),
            Name(head.source),
            cell(error_of(head)),
        ]
        if width >= _NARROW:
            tries = number(head.attempts) if head.attempts else cell("unknown", "dim")
            cells += [tries, number(head.replays)]
        shown.add_row(*cells, cell(ago(head.dead_at, now)))
    return shown


def _total(shown: int, found: LetterCount) -> str:
    if found.is_all:
        return f"Showing {shown:,} of {found.letters:,}."
    return f"Showing {shown:,} of more than {found.letters:,}."


def _nothing(query: Sequence[str], *, cut: bool) -> str:
    if cut:
        return "Nothing found yet; there are more letters to look at."
    if query:
        return f"No letter matches {' '.join(query)}"
    return "No dead letters."
