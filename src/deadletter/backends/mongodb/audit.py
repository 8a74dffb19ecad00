"""The audit: appended to at the end of each turn, never changed."""

from typing import Final

from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.audit import check_chain
from deadletter.core.escaping import shown, stored
from deadletter.core.letter import AuditEntry

from .schema import OFFICE, Collections, Document
from .times import number, time

_PAGE: Final = 5_000


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
    there: Collections,
    session: AsyncClientSession,
    *,
    target: str | None,
    after: int,
    limit: int,
) -> list[AuditEntry]:
    """Entries behind `after`, oldest first."""
    if limit < 1:
        return []
    asked: Document = {"_id": {"$gt": after}}
    if target is not None:
        asked["target"] = stored(target)
    found = there.audit.find(asked, {"at": 0}, session=session)
    return [_entry(one) async for one in found.sort("_id", 1).limit(limit)]


async def problems(there: Collections, session: AsyncClientSession) -> list[str]:
    """What is wrong with the audit, from its first entry to its last."""
    office = await there.office.find_one({"_id": OFFICE}, session=session)
    last = (office["audit_seq"], office["audit_hash"]) if office else (0, "")
    found: list[str] = []
    seq, hash_ = 0, ""
    while entries := await page(there, session, target=None, after=seq, limit=_PAGE):
        found += check_chain(entries, seq=seq, previous=hash_)
        seq, hash_ = entries[-1].seq, entries[-1].hash
    if (seq, hash_) != last:
        found.append(f"the audit ends with entry {seq}, but {last[0]} were written")
    return found


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
