"""The operations of filing letters in a MongoDB database."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace
from pymongo import UpdateOne

from deadletter.core.grouping import GroupRule
from deadletter.core.letter import DeadLetter, GroupStatus
from deadletter.core.letter_filing import Known
from deadletter.core.packing import pack_rest
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import FiledCounts

from . import groups
from .conventions import death_fields, letter_fields
from .database import Turn
from .letters_documents import INLINE, KNOWN, changing, document_of, known_of, parts_of
from .schema import Document
from .verification import MongodbReads


class MongodbFiling(MongodbReads):
    """The operations of filing in a turn; what is counted is written when the turn ends."""

    async def find_known(self, ids: Sequence[str]) -> dict[str, Known]:
        """Return the letters with these ids, each with the cap of its last campaign."""
        asked = {"_id": {"$in": [stored(id_) for id_ in ids]}}
        found = await self._there.letters.find(asked, KNOWN, session=self._session).to_list()
        caps = await _caps(self._turn, {one["seq"]: one["replays"] for one in found})
        return {one["_id"]: known_of(one, caps.get(one["seq"])) for one in found}

    async def insert_letters(self, letters: Sequence[tuple[Known, DeadLetter]]) -> None:
        """Write new letters, and what of their bodies does not fit into them."""
        documents: list[Document] = []
        parts: list[Document] = []
        for known, letter in letters:
            seq = self._turn.next_seq()
            more = letter_fields(self._turn.numbers, replace(letter, head=known.head))
            documents.append(more | document_of(known, letter, seq, self.sealing))
            parts += parts_of(letter.id, letter.message.body, seq)
        if documents:
            await self._there.letters.insert_many(documents, session=self._session)
        if parts:
            await self._there.parts.insert_many(parts, session=self._session)
        for known, letter in letters:
            if letter.original is not None:
                await _keep_original(self._turn, known, letter)

    async def rewrite_letters(self, letters: Sequence[Known]) -> None:
        """Write the heads and stories of letters that died again."""
        changes = []
        for one in letters:
            more = death_fields(self._turn.numbers, one)
            change = more | changing(one, one.seq, self.sealing)
            changes.append(UpdateOne({"_id": one.head.id}, {"$set": change}))
        await self._there.letters.bulk_write(changes, session=self._session)

    async def count_filed(self, counts: FiledCounts) -> list[str]:
        """Count what was filed; return the names of those groups that are resolved."""
        turn = self._turn
        turn.count("kept", len(counts.new))
        turn.note_letters(dict.fromkeys(counts.new, 1))
        for (source, fingerprint, state), n in counts.shifts.items():
            turn.shift(source, fingerprint, {state: n})
        if not counts.groups:
            return []
        await groups.see(self._there, self._session, counts.versions)
        turn.note_deaths({deaths.fingerprint: deaths.total for deaths in counts.groups})
        names = {"_id": {"$in": [stored(deaths.fingerprint) for deaths in counts.groups]}}
        known = self._there.groups.find(names, session=self._session)
        found = {shown(one["_id"]): one async for one in known}
        for deaths in counts.groups:
            name = deaths.fingerprint
            turn.died(name, groups.after(found.get(name), deaths), deaths.total)
        return [name for name, one in found.items() if one["status"] == GroupStatus.RESOLVED]

    async def find_rules(self) -> dict[str, tuple[GroupRule, ...]]:
        """Return the merges and splits that people decided; the office knows if there are any."""
        if not self._turn.numbers.get(groups.RULES):
            return {}
        return await groups.rules(self._there, self._session)

    async def find_new_groups(
        self, groups: Mapping[str, str], day: int
    ) -> tuple[list[str], dict[str, int]]:
        """Return which groups exist, and the number of groups made on a day by overflow group."""
        names = {"_id": {"$in": [stored(name) for name in groups]}}
        found = await self._there.groups.find(names, {"_id": 1}, session=self._session).to_list()
        there = [shown(one["_id"]) for one in found]
        kinds = {groups[name] for name in groups.keys() - set(there)}
        if not kinds:
            return there, {}
        asked: Document = {"_id": {"$in": sorted(kinds)}, "day": {"$gte": day}}
        counted = self._there.kinds.find(asked, session=self._session)
        return there, {one["_id"]: one["made"] async for one in counted}

    async def add_new_groups(self, made: Mapping[str, int], day: int) -> None:
        """Add to the number of groups made on a day, by overflow group."""
        # A clock that is behind at midnight must not begin a new day again.
        before = {"$cond": [{"$gte": ["$day", day]}, "$made", 0]}
        changes = [
            UpdateOne(
                {"_id": kind},
                [{"$set": {"day": {"$max": ["$day", day]}, "made": {"$add": [before, n]}}}],
                upsert=True,
            )
            for kind, n in made.items()
        ]
        await self._there.kinds.bulk_write(changes, session=self._session)

    async def find_versions(
        self, names: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], datetime]:
        """Return when versions, given by source and version, were first seen."""
        return await groups.first_seen(self._there, self._session, names)


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


async def _keep_original(turn: Turn, known: Known, letter: DeadLetter) -> None:
    """Keep the message that died, of a new letter that was edited elsewhere."""
    original = letter.as_it_died
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
