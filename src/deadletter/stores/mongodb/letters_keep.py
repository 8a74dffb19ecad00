"""Keeping letters: look up, decide by the rules of the core, write, count."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace
from pymongo import UpdateOne

from deadletter.core.campaign import Outcome
from deadletter.core.grouping import GroupLimit
from deadletter.core.letter import DeadLetter
from deadletter.core.letter_filing import Filed, Known, failed_copies, filing, reopened
from deadletter.core.packing import pack_rest
from deadletter.core.query.versions import first_seen
from deadletter.core.text import stored
from deadletter.office.transactions.outcomes import settle
from deadletter.ports.letters import Kept, ReplaySettled

from .database import Turn
from .groups import count_deaths, limit_groups, rules_if_any, see
from .letter_operations import MongodbOperations
from .letters_documents import INLINE, KNOWN, changing, document_of, known_of, parts_of
from .schema import Document


async def keep(
    turn: Turn, letters: Sequence[DeadLetter], now: datetime, limit: GroupLimit
) -> list[Kept]:
    """Keep letters, all of them or none."""
    seqs: dict[str, int] = {}
    rules = await rules_if_any(turn)
    letters = await limit_groups(turn, letters, now, limit, rules)
    filed = await _file(turn, letters, seqs)
    after = {one.id: one.after for one in filed if one.after is not None}
    new = {one.id: one.letter for one in filed if one.before is None}
    await _insert(turn, {id_: (after[id_], letter) for id_, letter in new.items()})
    await _rewrite(turn, [after[id_] for id_ in after if id_ not in new], seqs)
    await _count(turn, filed, now)
    turn.audit(reopened(filed, now))
    news = [
        ReplaySettled(copy.letter_id, copy.generation, Outcome.FAILED)
        for copy in failed_copies(filed)
    ]
    await settle(MongodbOperations(turn), news, now)
    return [Kept(one.id, is_new=one.before is None, conflict=one.conflict) for one in filed]


async def _file(turn: Turn, letters: Sequence[DeadLetter], seqs: dict[str, int]) -> list[Filed]:
    steps = filing(letters)
    wanted = next(steps)
    while True:
        known = await _look_up(turn, wanted, seqs)
        try:
            wanted = steps.send(known)
        except StopIteration as end:
            filed: list[Filed] = end.value
            return filed


async def _look_up(turn: Turn, wanted: Sequence[str], seqs: dict[str, int]) -> Mapping[str, Known]:
    asked = {"_id": {"$in": [stored(id_) for id_ in wanted]}}
    cursor = turn.there.letters.find(asked, KNOWN, session=turn.session)
    found = await cursor.to_list()
    caps = await _caps(turn, {one["seq"]: one["replays"] for one in found})
    seqs |= {one["_id"]: one["seq"] for one in found}
    return {one["_id"]: known_of(one, caps.get(one["seq"])) for one in found}


async def _caps(turn: Turn, replays: Mapping[int, int]) -> dict[int, int]:
    """The caps of the campaigns that sent letters out last."""
    out = [{"letter": seq, "generation": n} for seq, n in replays.items() if n > 0]
    if not out:
        return {}
    there, session = turn.there, turn.session
    items = await there.items.find({"$or": out}, session=session).to_list()
    senders = {"seq": {"$in": list({item["campaign"] for item in items})}}
    campaigns = there.campaigns.find(senders, {"seq": 1, "cap": 1}, session=session)
    caps = {one["seq"]: one["cap"] async for one in campaigns}
    return {item["letter"]: caps[item["campaign"]] for item in items}


async def _insert(turn: Turn, letters: Mapping[str, tuple[Known, DeadLetter]]) -> None:
    if not letters:
        return
    documents: list[Document] = []
    parts: list[Document] = []
    for known, letter in letters.values():
        seq = turn.next_seq()
        documents.append(document_of(known, letter, seq, turn.sealing))
        parts += parts_of(letter.id, letter.message.body, seq)
    await turn.there.letters.insert_many(documents, session=turn.session)
    if parts:
        await turn.there.parts.insert_many(parts, session=turn.session)
    for known, letter in letters.values():
        await _keep_original(turn, known, letter)
    turn.count("kept", len(documents))
    turn.note_letters(dict.fromkeys(letters, 1))


async def _keep_original(turn: Turn, known: Known, letter: DeadLetter) -> None:
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


async def _rewrite(turn: Turn, letters: Sequence[Known], seqs: Mapping[str, int]) -> None:
    if not letters:
        return
    changes = [
        UpdateOne({"_id": one.head.id}, {"$set": changing(one, seqs[one.head.id], turn.sealing)})
        for one in letters
    ]
    await turn.there.letters.bulk_write(changes, session=turn.session)


async def _count(turn: Turn, filed: Sequence[Filed], now: datetime) -> None:
    deaths: defaultdict[str, list[DeadLetter]] = defaultdict(list)
    for one in filed:
        if one.before is not None and one.after is not None:
            turn.shift_head(one.before.head, -1)
        if one.after is not None:
            turn.shift_head(one.after.head, 1)
        if one.died:
            deaths[one.letter.head.fingerprint].append(one.letter)
    heads = (one.letter.head for one in filed if one.died)
    await see(turn.there, turn.session, first_seen(heads))
    await count_deaths(turn, deaths, now)
    turn.note_deaths({name: len(some) for name, some in deaths.items()})
