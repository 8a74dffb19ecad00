"""dlq replay report: what became of each letter of a replay."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from cyclopts import Parameter
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from deadletter.core.campaign import Campaign, Outcome, ReplayItem
from deadletter.core.letter import LetterHead
from deadletter.office.batches import batched

from .campaigns import OUTCOMES, show_campaign
from .desk import AtDesk, Desk
from .exit_codes import ExitCode
from .office import SomeLetters
from .options import Flag
from .remaining import items_of
from .tables import NARROW, Name, cell, error_of, short, table
from .times import ago, local, many

_ROOMY: Final = 100  # columns from which a source may take more of them
_AGO: Final = 10  # columns: "59 min ago"
_NAMED: Final = 50  # letters in one search, which must not be too long
_SAID: Final = {
    **{outcome: said for outcome, (said, _) in OUTCOMES.items()},
    Outcome.SENT: "sent",
    Outcome.PRESUMED: "presumed",
    Outcome.REFUSED: "refused",
    Outcome.UNCONFIRMED: "unconfirmed",
    Outcome.WAITING: "waiting",
    Outcome.SKIPPED: "skipped",
    Outcome.HELD: "held",
}

_LATE: Final = "confirmed, then failed again"


async def report(
    campaign: str,
    /,
    *,
    outcome: Annotated[tuple[Outcome, ...], Parameter(negative="")] = (),
    ids: Flag = False,
    desk: AtDesk,
) -> ExitCode:
    """
    What became of each letter of a replay, in the order they go.

    With --json one line each; the sums are in `dlq replay status ID --json`. A letter
    that was confirmed may fail again later: then its outcome is failed, and
    `confirmed_at` says when it had been confirmed. Exit code 6 when there is such a
    letter.

    Args:
        campaign: The replay's id, or the beginning of it.
        outcome: Only letters with this outcome; confirmed is handled, presumed did not
            die again in time, failed is failed again, refused was never sent. Can be
            given several times.
        ids: Only the ids, one a line, for other commands.
    """
    named = 0
    late: list[ReplayItem] = []
    async with desk.office() as office:
        found = await office.replay.status(campaign)
        if not desk.as_json and not ids:
            show_campaign(desk, found)
        async for page in items_of(office, found.id):
            late += (one for one in page if one.failed_late)
            items = [one for one in page if not outcome or one.outcome in outcome]
            if not items:
                continue
            if ids:
                for item in items:
                    desk.tell(item.letter_id)
            elif desk.as_json:
                for item in items:
                    desk.document(item)
            else:
                heads = await _heads(office.letters, items)
                shown = _table(desk, items, heads, with_header=not named)
                desk.show(shown if named else Padding(shown, (1, 0, 0, 0)))
            named += len(items)
    if not desk.as_json and not ids:
        _tell_late(desk, late)
        _tell_rest(desk, found, outcome, named)
    return ExitCode.CHECK_FAILED if late else ExitCode.OK


async def _heads(
    letters: SomeLetters, items: Sequence[ReplayItem]
) -> dict[str, LetterHead]:
    """Of those that are still there, and that whoever asks may see."""
    heads: dict[str, LetterHead] = {}
    for ids in batched((item.letter_id for item in items), _NAMED):
        page = await letters.search(f"id:[{','.join(ids)}]", limit=len(ids))
        heads |= {head.id: head for head in page.heads}
    return heads


def _table(
    desk: Desk,
    items: Sequence[ReplayItem],
    heads: Mapping[str, LetterHead],
    *,
    with_header: bool,
) -> Table:
    # Only the last column has no width of its own, so that one page stands under
    # the other.
    width, now = desk.out.width, desk.clock.now()
    shown = table()
    shown.show_header = with_header
    shown.add_column("letter", width=len(short(items[0].letter_id, width)))
    shown.add_column("outcome", width=max(map(len, _SAID.values())))
    shown.add_column("when", width=_AGO)
    if width >= NARROW:
        shown.add_column("source", width=18 if width >= _ROOMY else 12)
    shown.add_column("what broke")
    for item in items:
        head = heads.get(item.letter_id)
        at = item.settled_at or item.sent_at or item.taken_at
        _, style = OUTCOMES[item.outcome]
        shown.add_row(
            cell(short(item.letter_id, width), "cyan"),
            Text(_LATE if item.failed_late else _SAID[item.outcome], style=style),
            cell(ago(at, now) if at else ""),
            *([Name(head.source if head else "")] if width >= NARROW else []),
            cell(
                f"refused: {item.why}" if item.why else error_of(head) if head else ""
            ),
        )
    return shown


def _tell_late(desk: Desk, late: Sequence[ReplayItem]) -> None:
    times = [one.settled_at for one in late if one.settled_at is not None]
    if not times:
        return
    were = "letter was" if len(late) == 1 else "letters were"
    last = (
        f"at {local(max(times))}" if len(late) == 1 else f"last at {local(max(times))}"
    )
    desk.tell(f"{len(late):,} {were} {_LATE}, {last}.", "red")


def _tell_rest(
    desk: Desk, campaign: Campaign, outcome: tuple[Outcome, ...], named: int
) -> None:
    gone = sum(campaign.counts.values()) - named
    if outcome:
        if not named:
            desk.tell(f"No letter of it has the outcome {' or '.join(outcome)}.")
    elif gone > 0:
        desk.tell(f"{many(gone, 'letter')} of it purged since: not named.", "dim")
    if not outcome and 0 < campaign.counts.get(Outcome.FAILED, 0) < named:
        only = f"{desk.dlq} replay report {campaign.id} --outcome {Outcome.FAILED}"
        desk.hint(f"Only those that failed again: {only}")
