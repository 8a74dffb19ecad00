"""Letters that change their group, and what people said about letters to come."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.escaping import shown, stored
from deadletter.core.letter import By
from deadletter.core.regrouping import GroupRule, Regrouping, deaths_moved, joined, told

from .groups import document_of, group_of
from .letters_documents import HEAD, head_of
from .schema import Collections, Document
from .turn import Session, Turn

RULES: Final = "group_rules"  # how many there are, in the document of the office


async def regroup(turn: Turn, move: Regrouping, by: By, now: datetime) -> int:
    """Move letters to another group, and what was said of theirs along."""
    there, session = turn.there, turn.session
    asked: Document = {
        "_id": {"$in": [stored(id_) for id_ in move.ids]},
        "fingerprint": stored(move.old),
    }
    found = await there.letters.find(asked, HEAD, session=session).to_list()
    if not found or move.old == move.new:
        return 0
    heads = [head_of(one) for one in found]
    names = {"_id": {"$in": [stored(move.old), stored(move.new)]}}
    groups = {
        shown(one["_id"]): group_of(one, now)
        async for one in there.groups.find(names, session=session)
    }
    old = groups[move.old]
    is_last = sum(old.counts.values()) <= len(heads)
    after = joined(old, groups.get(move.new), heads, is_last=is_last)
    before = groups[move.new].total if move.new in groups else 0
    turn.died(move.new, document_of(after), after.total - before)
    turn.note_deaths(deaths_moved(move, groups.get(move.new), after))
    for head in heads:
        turn.shift(head.source, move.new, {head.state: 1})
        if is_last:  # its group is gone, and so is what it counted
            turn.shift_source(head.source, {head.state: -1})
        else:
            turn.shift_head(head, -1)
    ids = {"_id": {"$in": [one["_id"] for one in found]}}
    changes = {"$set": {"fingerprint": stored(move.new)}}
    await there.letters.update_many(ids, changes, session=session)
    if is_last:
        await there.groups.delete_one({"_id": stored(move.old)}, session=session)
    else:
        left = {"$inc": {"total": -min(len(heads), old.total)}}
        await there.groups.update_one({"_id": stored(move.old)}, left, session=session)
    turn.act("regroup", move.old, by, at=now, detail=told(len(heads), move))
    return len(heads)


async def rules(
    there: Collections, session: Session
) -> dict[str, tuple[GroupRule, ...]]:
    """Return the merges and splits that people decided, by group."""
    found = there.rules.find({"_id": {"$ne": ""}}, session=session)
    return {
        shown(one["_id"]): msgspec.json.decode(one["rules"], type=tuple[GroupRule, ...])
        async for one in found
    }


async def rules_if_any(turn: Turn) -> dict[str, tuple[GroupRule, ...]]:
    """The same; nothing is asked where the office knows that there are none."""
    if not turn.numbers.get(RULES):
        return {}
    return await rules(turn.there, turn.session)


async def set_rules(turn: Turn, fingerprint: str, rules: Sequence[GroupRule]) -> None:
    """Write down where letters of a group belong from now on."""
    there, session = turn.there, turn.session
    asked = {"_id": stored(fingerprint)}
    if rules:
        said = {"$set": {"rules": msgspec.json.encode(rules)}}
        await there.rules.update_one(asked, said, upsert=True, session=session)
    else:
        await there.rules.delete_one(asked, session=session)
    others = {"_id": {"$ne": ""}}
    turn.numbers[RULES] = await there.rules.count_documents(others, session=session)
