"""Letters that get another message; what died is kept beside it."""

from datetime import datetime

from msgspec.structs import replace

from deadletter.core.editing import Edit, check_revision, edited, no_letter
from deadletter.core.escaping import stored
from deadletter.core.ids import body_digest
from deadletter.core.keeping import Known
from deadletter.core.letter import DeadLetter
from deadletter.core.packing import pack_rest
from deadletter.core.seals import EDITED

from .letters_documents import INLINE, get, parts_of
from .schema import Document
from .turn import Turn


async def edit(turn: Turn, edit: Edit, now: datetime) -> int:
    """Put another message into a letter; its new revision."""
    there, session = turn.there, turn.session
    found = await get(there, session, [edit.id])
    if not found:
        raise no_letter(edit.id)
    (letter,) = found
    check_revision(letter.head, edit.revision)
    head, detail = edited(letter.head, letter.message, edit.message)
    which = {"_id": stored(edit.id)}
    before = await there.letters.find_one(which, session=session)
    assert before is not None
    await _set_aside(turn, before)
    digest = body_digest(edit.message.body)
    rest = pack_rest(replace(letter, message=edit.message))
    changes: Document = {
        "digest": digest,
        "seal": turn.sealing.message(head, digest, rest, EDITED),
        "died": before.get("died", before["digest"]),
        "rest": rest,
        "body": edit.message.body[:INLINE],
        "size": head.size,
        "revision": head.revision,
        # Another text may need escaping, or none of them any more.
        "odd": before["odd"] or stored(head.key) != head.key,
    }
    if head.key is not None:
        change = {"$set": changes | {"key": stored(head.key)}}
    else:
        change = {"$set": changes, "$unset": {"key": ""}}
    await there.letters.update_one(which, change, session=session)
    parts = parts_of(edit.id, edit.message.body, before["seq"])
    if parts:
        await there.parts.insert_many(parts, session=session)
    turn.act("edit", edit.id, edit.by, at=now, detail=detail)
    return head.revision


async def keep_original(turn: Turn, known: Known, letter: DeadLetter) -> None:
    """What died, of a new letter that was edited elsewhere."""
    original = letter.original
    if original is None:
        return
    seq = turn.next_seq()
    rest = pack_rest(replace(letter, message=original))
    document = {
        "_id": known.head.id,
        "seq": seq,
        "digest": known.digest,
        "seal": turn.sealing.message(known.head, known.digest, rest),
        "rest": rest,
        "body": original.body[:INLINE],
    }
    await turn.there.originals.insert_one(document, session=turn.session)
    parts = parts_of(letter.id, original.body, seq)
    if parts:
        await turn.there.parts.insert_many(parts, session=turn.session)


async def _set_aside(turn: Turn, letter: Document) -> None:
    """Copy what died, the first time; the parts of its body become the copy's."""
    parts = {"letter": letter["seq"]}
    if "died" in letter:
        await turn.there.parts.delete_many(parts, session=turn.session)
        return
    copied = ("_id", "digest", "rest", "body", "seal")
    copy = {name: letter[name] for name in copied if name in letter}
    copy["seq"] = turn.next_seq()
    await turn.there.originals.insert_one(copy, session=turn.session)
    await turn.there.parts.update_many(
        parts, {"$set": {"letter": copy["seq"]}}, session=turn.session
    )
