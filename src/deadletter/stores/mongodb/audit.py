"""The audit: appended to at the end of each turn, never changed."""

from collections.abc import Mapping

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.letter import AuditEntry
from deadletter.core.text import shown, stored

from .letters_documents import number, time
from .schema import Collections, Document


def document_of(entry: AuditEntry) -> Document:
    """A sealed entry as it is stored."""
    return {
        "_id": entry.seq,
        "at": entry.at,  # for people
        "time": number(entry.at),
        "actor": stored(entry.actor),
        "action": stored(entry.action),
        "target": stored(entry.target),
        "reason": stored(entry.reason),
        "detail": stored(entry.detail),
        "previous": entry.previous,
        "hash": entry.hash,
    }


async def page(
    there: Collections, session: AsyncClientSession, *, target: str | None, after: int, limit: int
) -> list[AuditEntry]:
    """Entries behind `after`, oldest first."""
    if limit < 1:
        return []
    asked: Document = {"_id": {"$gt": after}}
    if target is not None:
        asked["target"] = stored(target)
    found = there.audit.find(asked, {"at": 0}, session=session)
    return [_entry(one) async for one in found.sort("_id", 1).limit(limit)]


async def latest(
    there: Collections,
    session: AsyncClientSession,
    *,
    wanted: Mapping[str, str | None],
    before: int | None,
    limit: int,
) -> list[AuditEntry]:
    """Entries in front of `before` with these values, newest first."""
    if limit < 1:
        return []
    asked: Document = {name: stored(value) for name, value in wanted.items() if value is not None}
    if before is not None:
        asked["_id"] = {"$lt": before}
    found = there.audit.find(asked, {"at": 0}, session=session)
    return [_entry(one) async for one in found.sort("_id", -1).limit(limit)]


def _entry(found: Document) -> AuditEntry:
    return AuditEntry(
        seq=found["_id"],
        at=time(found["time"]),
        actor=shown(found["actor"]),
        action=shown(found["action"]),
        target=shown(found["target"]),
        reason=shown(found["reason"]),
        detail=shown(found["detail"]),
        previous=found["previous"],
        hash=found["hash"],
    )
