"""The operations of office transactions on a MongoDB database, in a writer's turn."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from deadletter.core.audit import ItemSum, SealedLetter, Sums
from deadletter.core.brake import Release, encode_release
from deadletter.core.grouping import GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.saved_search import SavedSearch, decode_search, encode_search
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import Brief, Revision, Seals

from . import groups
from .campaigns import BRIEF, brief_of
from .conventions import state_fields
from .filing import MongodbFiling
from .letters_documents import HEAD, INLINE, get, head_of, parts_of, place
from .replays import ReplayOperations
from .schema import Document


class MongodbOperations(MongodbFiling, ReplayOperations):
    """One turn; what it counts and audits is written when the turn ends."""

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time."""
        if limit < 1:
            return []
        asked: Document = {"state": state.value, "place": {"$lt": place(before)}}
        cursor = self._there.letters.find(asked, BRIEF, session=self._session)
        return [brief_of(one) async for one in cursor.sort("place", 1).limit(limit)]

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number."""
        found = await get(self._there, self._session, [id])
        if not found:
            return None
        (brief,) = await self.find_briefs([id])
        return brief.seq, found[0]

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters."""
        changes = state_fields(self._turn.numbers, state) | {"state": state.value}
        await self._there.letters.update_many(
            {"_id": {"$in": [brief.id for brief in letters]}},
            {"$set": changes, "$inc": {"revision": 1}},
            session=self._session,
        )

    async def replace_message(self, revision: Revision) -> None:
        """Write another message into a letter; keep the message that died aside."""
        head, body = revision.head, revision.message.body
        which = {"_id": stored(head.id)}
        before = await self._there.letters.find_one(which, session=self._session)
        assert before is not None  # it was read in this turn
        await self._set_aside(before)
        changes: Document = {
            "digest": revision.digest,
            "seal": revision.seal,
            "died": before.get("died", before["digest"]),
            "rest": revision.rest,
            "body": body[:INLINE],
            "size": head.size,
            "revision": head.revision,
            # Another text may need escaping, or none of them any more.
            "odd": before["odd"] or stored(head.key) != head.key,
        }
        if head.key is not None:
            change = {"$set": changes | {"key": stored(head.key)}}
        else:
            change = {"$set": changes, "$unset": {"key": ""}}
        await self._there.letters.update_one(which, change, session=self._session)
        parts = parts_of(head.id, body, revision.seq)
        if parts:
            await self._there.parts.insert_many(parts, session=self._session)

    async def _set_aside(self, letter: Document) -> None:
        """Copy what died, the first time; the parts of its body become the copy's."""
        parts = {"letter": letter["seq"]}
        if "died" in letter:
            await self._there.parts.delete_many(parts, session=self._session)
            return
        copied = ("_id", "digest", "rest", "body", "seal")
        copy = {name: letter[name] for name in copied if name in letter}
        copy["seq"] = self._turn.next_seq()
        await self._there.originals.insert_one(copy, session=self._session)
        change = {"$set": {"letter": copy["seq"]}}
        await self._there.parts.update_many(parts, change, session=self._session)

    async def delete_letters(self, letters: Sequence[Brief]) -> None:
        """Delete letters with their contents."""
        there, session = self._there, self._session
        ids = {"_id": {"$in": [brief.id for brief in letters]}}
        seqs = [brief.seq for brief in letters]
        await there.letters.delete_many(ids, session=session)
        originals = await there.originals.distinct("seq", ids, session=session)
        if originals:
            await there.originals.delete_many(ids, session=session)
        parts = {"letter": {"$in": [*seqs, *originals]}}
        await there.parts.delete_many(parts, session=session)

    async def count_deleted(self, letters: Sequence[Brief], action: str) -> None:
        """Count deleted letters for the office."""
        self._turn.note_letters({brief.id: -1 for brief in letters})
        self._turn.count(f"{action}d", len(letters))

    async def append_audit(self, entries: Sequence[AuditEntry]) -> None:
        """Seal entries and write them at the end of the audit."""
        self._turn.audit(entries)

    async def find_standings(self, names: Sequence[str]) -> dict[str, Standing]:
        """Return the standings of groups that exist."""
        return await groups.standings(self._turn, names)

    async def set_standing(self, name: str, standing: Standing) -> None:
        """Write another standing of a group."""
        await groups.put_standing(self._turn, name, standing)

    async def find_groups(self, names: Sequence[str], now: datetime) -> dict[str, Group]:
        """Return groups that exist, with their counts."""
        asked = {"_id": {"$in": [stored(name) for name in names]}}
        found = self._there.groups.find(asked, session=self._session)
        return {shown(one["_id"]): groups.group_of(one, now) async for one in found}

    async def find_members(self, ids: Sequence[str], name: str) -> list[tuple[int, LetterHead]]:
        """Return the numbers and heads of those letters that are in a group."""
        asked: Document = {
            "_id": {"$in": [stored(id_) for id_ in ids]},
            "fingerprint": stored(name),
        }
        found = self._there.letters.find(asked, HEAD, session=self._session)
        return [(one["seq"], head_of(one)) async for one in found]

    async def move_members(self, letters: Sequence[tuple[int, LetterHead]], name: str) -> None:
        """Write another group into letters."""
        which = {"_id": {"$in": [stored(head.id) for _, head in letters]}}
        change = {"$set": {"fingerprint": stored(name)}}
        await self._there.letters.update_many(which, change, session=self._session)

    async def put_group(self, name: str, group: Group) -> None:
        """Write a group, new or again, without its counts by state."""
        change = {"$set": groups.document_of(group) | {"total": group.total}}
        which = {"_id": stored(name)}
        await self._there.groups.update_one(which, change, upsert=True, session=self._session)

    async def shrink_group(self, name: str, deaths: int) -> None:
        """Subtract deaths from the total of a group."""
        left = {"$max": [{"$subtract": ["$total", deaths]}, 0]}
        which = {"_id": stored(name)}
        change = [{"$set": {"total": left}}]
        await self._there.groups.update_one(which, change, session=self._session)

    async def delete_group(self, name: str) -> None:
        """Delete a group and its counts."""
        self._turn.drop_group(name)
        await self._there.groups.delete_one({"_id": stored(name)}, session=self._session)

    async def clear_empty_groups(self, letters: Sequence[Brief]) -> list[str]:
        """Delete texts of groups whose last letters these were; return their names."""
        return await groups.blank(self._turn, Counter(brief.fingerprint for brief in letters))

    async def count_deaths(self, deaths: Mapping[str, int]) -> None:
        """Add deaths by group to the sum that `verify` compares with."""
        self._turn.note_deaths(deaths)

    async def rename_deaths(self, names: Mapping[str, str]) -> None:
        """Change nothing: this store does not count deaths over time."""

    async def set_rules(self, name: str, rules: Sequence[GroupRule]) -> None:
        """Write the merges and splits of a group; none deletes them."""
        which = {"_id": stored(name)}
        if rules:
            change = {"$set": {"rules": msgspec.json.encode(rules)}}
            await self._there.rules.update_one(which, change, upsert=True, session=self._session)
        else:
            await self._there.rules.delete_one(which, session=self._session)
        left = await self._there.rules.count_documents({"_id": {"$ne": ""}}, session=self._session)
        self._turn.numbers[groups.RULES] = left

    async def find_searches(self) -> list[SavedSearch]:
        """Return all saved searches, by name."""
        found = self._there.searches.find({"_id": {"$ne": ""}}, session=self._session)
        return [decode_search(one["search"]) async for one in found.sort("_id", 1)]

    async def put_search(self, search: SavedSearch) -> None:
        """Write a search, new or again."""
        await self._there.searches.update_one(
            {"_id": stored(search.name)},
            {"$set": {"search": encode_search(search)}},
            upsert=True,
            session=self._session,
        )

    async def delete_search(self, name: str) -> None:
        """Delete a search."""
        await self._there.searches.delete_one({"_id": stored(name)}, session=self._session)

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""
        done = await self._there.windows.update_many(
            {"mailbox": stored(mailbox), "is_closed": False},
            {"$set": {"release": encode_release(release)}},
            session=self._session,
        )
        return int(done.matched_count)

    async def write_sums(self, sums: Sums) -> None:
        """Write other sums of the office."""
        self._turn.numbers |= {
            "deaths": sums.deaths,
            "death_marks": sums.death_marks,
            "letter_marks": sums.letter_marks,
            "marks_key": sums.key,
        }

    async def write_item_sums(self, sums: Sequence[ItemSum]) -> None:
        """Write other sums of campaigns, each for all its outcomes."""
        by_campaign: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for one in sums:
            by_campaign[one.campaign][one.outcome] = one.marks
        for seq, marks in by_campaign.items():
            change = {"$set": {"marks": marks, "marks_key": self.sealing.key_id}}
            await self._there.campaigns.update_one({"seq": seq}, change, session=self._session)

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""
        message, story, original = seals
        which = {"_id": stored(letter.head.id)}
        changes = {"$set": {"seal": message, "story_seal": story}}
        await self._there.letters.update_one(which, changes, session=self._session)
        if original is not None:
            died = {"$set": {"seal": original}}
            await self._there.originals.update_one(which, died, session=self._session)
