"""Badges of the navigation: problems that are new, open letters, running replays."""

from typing import Final

from msgspec import Struct

from deadletter.core.access import Identity
from deadletter.core.campaign import CampaignState
from deadletter.core.letter import GroupStatus, still_open
from deadletter.server.context import ServerContext

MOST: Final = 99  # counted up to here; more is `99+`
_ALARMING: Final = frozenset({GroupStatus.NEW, GroupStatus.REGRESSED})


class Badges(Struct, frozen=True, kw_only=True):
    """Numbers beside the entries of the navigation; 0 shows none."""

    groups: int = 0  # new or regressed
    letters: int = 0  # open
    replays: int = 0  # running

    def text(self, name: str) -> str:
        """Return the number of a badge as it is shown; nothing for 0."""
        count: int = getattr(self, name) if name else 0
        if name == "letters":
            return f"{count:,}" if count else ""
        return f"{MOST}+" if count > MOST else str(count or "")


async def load_badges(context: ServerContext, who: Identity) -> Badges:
    """Return the numbers that this person may see."""
    store = context.store
    counts = await store.counts()
    alarming = 0
    for source in who.sources or (None,):
        found = await store.groups(source=source, statuses=_ALARMING, limit=MOST + 1)
        alarming += len(found)
    running = await store.campaigns(
        limit=MOST + 1, only=CampaignState.RUNNING, owner=who.principal if who.sources else None
    )
    return Badges(
        groups=alarming,
        letters=sum(still_open(states) for name, states in counts.items() if who.sees(name)),
        replays=len(running),
    )
