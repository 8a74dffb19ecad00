"""
Offices that share a broker and do not share their keys, as far as one of them can see.

A copy that is signed with a key of ours only is a new message to the workers of another
office: they report no outcome to us, and their failures become other letters.
"""

from datetime import datetime, timedelta
from typing import Final

from deadletter.core.campaign import Outcome
from deadletter.core.letter import State
from deadletter.core.query.ast import Op, Term
from deadletter.core.signing import Keys
from deadletter.ports import LetterStore

SILENT: Final = timedelta(days=1)  # without any news of a copy
_MOST: Final = 200  # letters that are looked at
_REPLAYING: Final = Term("is", Op.IS, (State.REPLAYING,))


async def silent_copies(store: LetterStore, now: datetime) -> int:
    """Count replayed copies of which nobody has reported anything; a few are enough."""
    page = await store.find(_REPLAYING, limit=_MOST)
    items = await store.replays([head.id for head in page.heads])
    latest = {item.letter_id: item for item in items}
    return sum(
        item.outcome is Outcome.SENT
        and item.sent_at is not None
        and now - item.sent_at > SILENT
        for item in latest.values()
    )


def describe(keys: Keys, silent: int) -> str:
    """Say which keys there are, who must have them too, and what hints at a lack."""
    first, *others = keys.ids
    text = f"What we write on messages is signed with key {first}"
    if others:
        text += f"; verified with {', '.join(others)} as well"
    text += "."
    if silent:
        count = "1 replayed copy has"
        if silent > 1:
            many = f"{silent}" if silent < _MOST else f"{_MOST} or more"
            count = f"{many} replayed copies have"
        text += (
            f" {count} had no outcome for a day. If workers of another office take"
            " them, set the same `signing_keys` on both sides: `dlq doctor` there names"
            " its keys."
        )
    else:
        text += " Other offices on this broker need the same `signing_keys`."
    return text
