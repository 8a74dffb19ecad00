"""dlq list: what died, and of what."""

from datetime import datetime
from typing import Any, Final

import msgspec
from rich.table import Table

from deadletter.core.letter import LetterHead

from .desk import AtDesk
from .options import Shown
from .tables import (
    cell,
    error_of,
    firm_column,
    number,
    number_column,
    short,
    state,
    table,
    text_column,
)
from .times import ago

_NARROW: Final = 100


async def list_(
    *query: str, limit: Shown = 25, after: str | None = None, desk: AtDesk
) -> None:
    """
    Search the dead letters, newest first.

    Fields: is, has, id, source, partition, message, key, business_key, reason,
    trouble, category, code, error, text, group, attempts, replays, version,
    consumer, owner, trace, size, age, since, until, dead, first, header.NAME,
    body.PATH.

    - dlq list is:pending
    - dlq list 'error:TimeoutError age:<2d !has:owner'
    - dlq list 'source:[orders,payments] body.amount:>100 refused'

    Args:
        query: In the search language; nothing is everything. Put it in quotes if
            it holds < > ! * or brackets.
        limit: How many to show.
        after: Where an earlier list ended, to go on from there.
    """
    async with desk.office() as office:
        page = await office.letters.search(" ".join(query), limit=limit, after=after)
    if desk.as_json:
        for head in page.heads:
            desk.document(head_fields(head))
        return
    if not page.heads:
        desk.tell(_nothing(query, cut=page.after is not None))
    else:
        desk.show(_letters(page.heads, desk.clock.now(), desk.out.width))
    if page.after is not None:
        again = " ".join(["dlq list", *(f"'{word}'" for word in query)])
        desk.hint(f"There is more: {again} --after {page.after}")
    if page.heads:
        desk.hint(f"dlq show {short(page.heads[0].id)} tells a letter's whole story.")


def head_fields(head: LetterHead) -> dict[str, Any]:
    """A letter's head as a JSON object."""
    fields: dict[str, Any] = msgspec.to_builtins(head)
    fields["category"] = head.category
    return fields


def _letters(heads: tuple[LetterHead, ...], now: datetime, width: int) -> Table:
    shown = table()
    firm_column(shown, "id")
    firm_column(shown, "state")
    firm_column(shown, "source", most=18 if width >= _NARROW else 12)
    text_column(shown, "what broke")
    if width >= _NARROW:
        number_column(shown, "tries")
        number_column(shown, "replays")
    firm_column(shown, "died")
    for head in heads:
        cells = [
            cell(short(head.id, width), "cyan"),
            state(head.state),
            cell(head.source),
            cell(error_of(head)),
        ]
        if width >= _NARROW:
            cells += [number(head.attempts), number(head.replays)]
        shown.add_row(*cells, cell(ago(head.dead_at, now)))
    return shown


def _nothing(query: tuple[str, ...], *, cut: bool) -> str:
    if cut:
        return "Nothing found yet; there are more letters to look at."
    if query:
        return f"No letter matches {' '.join(query)}"
    return "No dead letters. All is well."
