"""When brakes were open, and who said to go on."""

from collections.abc import Sequence
from datetime import datetime

from pymongo import ReturnDocument

from deadletter.core.brake_window import (
    BrakeWindow,
    Release,
    decode,
    encode,
    encode_release,
)
from deadletter.core.escaping import stored
from deadletter.core.letter import By

from .schema import Collections
from .turn import Turn


async def save(there: Collections, window: BrakeWindow, keep: int) -> BrakeWindow:
    """Write a window, new or again; return it with its release."""
    document = encode(window)
    changes = {
        "mailbox": stored(window.mailbox),
        "is_closed": window.closed_at is not None,
        "document": document,
    }
    kept = await there.windows.find_one_and_update(
        {"_id": window.id},
        {"$set": changes},
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    newest = there.windows.find({}, {"_id": 1}).sort("_id", -1).skip(keep).limit(1)
    async for old in newest:
        await there.windows.delete_many({"_id": {"$lte": old["_id"]}})
    return decode(document, kept.get("release") if kept else None)


async def latest(
    there: Collections, mailbox: str | None, limit: int
) -> Sequence[BrakeWindow]:
    """Windows of all mailboxes or one, the latest first."""
    asked = {} if mailbox is None else {"mailbox": stored(mailbox)}
    found = there.windows.find(asked).sort("_id", -1).limit(limit)
    return [decode(one["document"], one.get("release")) async for one in found]


async def release(turn: Turn, mailbox: str, by: By, at: datetime) -> int:
    """Release a mailbox's windows that are not closed; how many."""
    done = await turn.there.windows.update_many(
        {"mailbox": stored(mailbox), "is_closed": False},
        {"$set": {"release": encode_release(Release(by.actor, by.reason, at))}},
        session=turn.session,
    )
    if done.matched_count:
        turn.act("release-brake", mailbox, by, at=at)
    return int(done.matched_count)
