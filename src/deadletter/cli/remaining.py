"""Letters of a replay that still need one: they failed again, or were held."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from deadletter.core.campaign import Campaign, CampaignState, Outcome, ReplayItem
from deadletter.office.batches import batched

from .desk import Desk
from .exit_codes import ExitCode
from .office import Office
from .tables import short
from .way_back import same_way

_ASKED: Final = 50  # letters in one search, which must not be too long
_MOST: Final = 500  # that may need it, of which we ask whether they are open
_NAMED: Final = 10
_ONE_AND_MORE: Final = {
    Outcome.FAILED: (
        "letter of it failed again and is",
        "letters of it failed again and are",
    ),
    Outcome.REFUSED: (
        "letter of it was refused by the server it goes to and is",
        "letters of it were refused by the server they go to and are",
    ),
    Outcome.UNCONFIRMED: (
        "letter of it has no outcome and is",
        "letters of it have no outcome and are",
    ),
    Outcome.HELD: (
        "letter of it was held behind one of its key and is",
        "letters of it were held behind one of their key and are",
    ),
}


class Remaining(Struct, frozen=True):
    """Letters that a replay was no help to and that are open, by their outcome."""

    ids: Mapping[Outcome, Sequence[str]] = {}
    at_least: bool = False  # there were too many to ask for them all


async def items_of(
    office: Office, campaign: str
) -> AsyncIterator[Sequence[ReplayItem]]:
    """What became of a replay's letters, page by page."""
    after: int | None = 0
    while after is not None:
        page = await office.outcomes(campaign, after=after)
        after = page.after
        yield page.items


async def still_to_replay(office: Office, campaign: Campaign) -> Remaining:
    """Find those that failed again or were held, and that nobody has seen to since."""
    wanted = _needing(campaign)
    if not wanted:
        return Remaining()
    found: dict[str, Outcome] = {}
    async for page in items_of(office, campaign.id):
        found |= {one.letter_id: one.outcome for one in page if one.outcome in wanted}
        if len(found) >= _MOST:
            break
    ids: dict[Outcome, list[str]] = {outcome: [] for outcome in wanted}
    for some in batched(found, _ASKED):
        opened = frozenset(
            await office.letters.freeze(f"is:open id:[{','.join(some)}]")
        )
        for id_ in some:
            if id_ in opened:
                ids[found[id_]].append(id_)
    return Remaining(ids, len(found) >= _MOST)


async def tell_remaining(desk: Desk, office: Office, campaign: Campaign) -> ExitCode:
    """Name the letters of a replay that still need one, and say how to send them."""
    left = await still_to_replay(office, campaign)
    every = [id_ for ids in left.ids.values() for id_ in ids]
    if not every:
        return ExitCode.OK
    least = "At least " if left.at_least else ""
    for outcome, ids in left.ids.items():
        if ids:
            which = _ONE_AND_MORE[outcome][len(ids) > 1]
            names = ", ".join(short(id_) for id_ in ids[:_NAMED])
            more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
            desk.warn(f"{least}{len(ids):,} {which} open: {names}{more}.")
    they = "it" if len(every) == 1 else "them"
    if campaign.state is CampaignState.PAUSED:
        desk.warn(f"`dlq replay resume` does not send {they} again.")
    desk.warn(f"When the cause is fixed, send {they} again:")
    if len(every) <= _NAMED:
        names = " ".join(map(short, every))
        desk.warn(f"  {desk.dlq} replay {names}{same_way(desk, campaign)}")
    else:
        which = " ".join(f"--outcome {outcome}" for outcome in left.ids)
        report = f"{desk.dlq} replay report {campaign.id} {which} --ids"
        way = same_way(desk, campaign)
        desk.warn(f"  {report} | xargs {desk.dlq} replay --yes{way}")
    return ExitCode.CHECK_FAILED


def _needing(campaign: Campaign) -> list[Outcome]:
    """Outcomes of letters that may need a replay, in the order they are told."""
    counts = campaign.counts
    wanted = [
        one
        for one in (Outcome.FAILED, Outcome.REFUSED, Outcome.HELD)
        if counts.get(one)
    ]
    if Outcome.HELD in wanted and counts.get(Outcome.UNCONFIRMED):
        # Letters are held behind these, too, and must not go before them.
        wanted.insert(-1, Outcome.UNCONFIRMED)
    return wanted
