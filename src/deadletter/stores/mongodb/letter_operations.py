"""The operations of office transactions on a MongoDB database, in a writer's turn."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from deadletter.core.audit import SealedLetter
from deadletter.core.brake import Release, encode_release
from deadletter.core.campaign import Campaign, CampaignState, Outcome
from deadletter.core.grouping import GroupRule
from deadletter.core.letter import AuditEntry, DeadLetter, Group, LetterHead, Standing, State
from deadletter.core.replay_rules import SETTLED_FROM
from deadletter.core.seals import ItemMoves, Sealing
from deadletter.core.text import shown, stored
from deadletter.office.transactions.operations import (
    Brief,
    Course,
    ReplayedCopy,
    Revision,
    Seals,
    Shifts,
)

from . import campaigns, groups, letters_verify
from .campaigns import CampaignTally
from .database import Turn
from .letters_documents import HEAD, INLINE, get, head_of, number, parts_of, place
from .schema import Document

_BRIEF: Final = dict.fromkeys(("seq", "source", "fingerprint", "state", "replays"), 1)
_AT_ONCE: Final = 5_000  # ids in one statement
# When it had been confirmed, of an item that was.
_LATE: Final = {
    "confirmed": {"$cond": [{"$eq": ["$outcome", Outcome.CONFIRMED.value]}, "$settled", "$$REMOVE"]}
}


def _brief(found: Document) -> Brief:
    return Brief(
        found["seq"],
        found["_id"],
        shown(found["source"]),
        shown(found["fingerprint"]),
        State(found["state"]),
        found["replays"],
    )


class MongodbOperations:
    """One turn; what it counts and audits is written when the turn ends."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._there = turn.there
        self._session = turn.session
        self._tallies: dict[int, CampaignTally] = {}

    @property
    def sealing(self) -> Sealing:
        """The keys that letters and the audit are sealed with."""
        return self._turn.sealing

    async def find_briefs(self, ids: Sequence[str]) -> list[Brief]:
        """Return the letters with these ids, each once, in this order."""
        wanted = list(dict.fromkeys(ids))
        found: dict[str, Brief] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            some = [stored(id_) for id_ in wanted[start : start + _AT_ONCE]]
            asked = {"_id": {"$in": some}}
            cursor = self._there.letters.find(asked, _BRIEF, session=self._session)
            found |= {one["_id"]: _brief(one) async for one in cursor}
        return [found[id_] for id_ in wanted if id_ in found]

    async def find_overdue(self, state: State, before: datetime, limit: int) -> list[Brief]:
        """Return the oldest letters in a state that died before a time."""
        if limit < 1:
            return []
        asked: Document = {"state": state.value, "place": {"$lt": place(before)}}
        cursor = self._there.letters.find(asked, _BRIEF, session=self._session)
        return [_brief(one) async for one in cursor.sort("place", 1).limit(limit)]

    async def find_letter(self, id: str) -> tuple[int, DeadLetter] | None:
        """Return one whole letter with its number."""
        found = await get(self._there, self._session, [id])
        if not found:
            return None
        (brief,) = await self.find_briefs([id])
        return brief.seq, found[0]

    async def set_state(self, letters: Sequence[Brief], state: State) -> None:
        """Write another state into letters."""
        await self._there.letters.update_many(
            {"_id": {"$in": [brief.id for brief in letters]}},
            {"$set": {"state": state.value}, "$inc": {"revision": 1}},
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

    async def shift_counts(self, shifts: Shifts) -> None:
        """Change the number of letters by source, group and state."""
        for (source, fingerprint, state), n in shifts.items():
            self._turn.shift(source, fingerprint, {state: n})

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

    async def release_windows(self, mailbox: str, release: Release) -> int:
        """Write a release into the open windows of a mailbox; return their number."""
        done = await self._there.windows.update_many(
            {"mailbox": stored(mailbox), "is_closed": False},
            {"$set": {"release": encode_release(release)}},
            session=self._session,
        )
        return int(done.matched_count)

    async def find_campaign(self, id: str) -> Course | None:
        """Return the position of a campaign."""
        asked = {"_id": stored(id)}
        found = await self._there.campaigns.find_one(asked, session=self._session)
        if found is None:
            return None
        return self._hold(CampaignTally(found)).position

    async def start_campaign(self, campaign: Campaign) -> None:
        """Write a campaign without letters, unless it exists."""
        await campaigns.start(self._turn, campaign)

    async def set_campaign(self, course: Course, state: CampaignState, runs_as: str) -> None:
        """Write another state of a campaign, and the principal that it runs as."""
        tally = self._tallies[course.seq]
        tally.state, tally.runs_as = state, runs_as

    async def plan_items(self, course: Course, campaign: Campaign, ids: Sequence[str]) -> int:
        """Add letters to a campaign, oldest sent first; return the number of new ones."""
        ordered = await campaigns.sent_order(self._there, self._session, ids)
        letters = await self.find_briefs(ordered)
        return await campaigns.add(self._turn, self._tallies[course.seq], campaign, letters)

    async def finish_campaigns(self, campaigns: Collection[int]) -> None:
        """End running campaigns that have nothing left to wait for."""
        for seq in campaigns:
            self._tallies[seq].finish()

    async def find_copies(self, copies: Collection[tuple[str, int]]) -> list[ReplayedCopy]:
        """Return the copies of these letters that news can change."""
        letters = {one.seq: one for one in await self.find_briefs([id_ for id_, _ in copies])}
        most = sorted(SETTLED_FROM[Outcome.FAILED])
        asked = {"letter": {"$in": list(letters)}, "outcome": {"$in": most}}
        items = await self._there.items.find(asked, session=self._session).to_list()
        for tally in await campaigns.tallies(self._turn, (item["campaign"] for item in items)):
            self._hold(tally)
        return [
            ReplayedCopy(
                letters[item["letter"]],
                item["generation"],
                item["campaign"],
                item["ordinal"],
                Outcome(item["outcome"]),
                self._tallies[item["campaign"]].cap,
                self._tallies[item["campaign"]].keyed,
            )
            for item in items
        ]

    async def settle_items(
        self, campaign: int, ordinals: Sequence[int], outcome: Outcome, now: datetime
    ) -> None:
        """Write the outcome of items."""
        await self._there.items.update_many(
            {"campaign": campaign, "ordinal": {"$in": ordinals}},
            [{"$set": {**_LATE, "outcome": outcome.value, "settled": number(now)}}],
            session=self._session,
        )

    async def explain_items(self, reasons: Sequence[tuple[str, int, int]]) -> None:
        """Write why items were refused: text, campaign and ordinal of each."""
        for reason, campaign, ordinal in reasons:
            which = {"campaign": campaign, "ordinal": ordinal}
            change = {"$set": {"why": stored(reason)}}
            await self._there.items.update_one(which, change, session=self._session)

    async def count_items(self, moves: ItemMoves) -> None:
        """Change the number of items by outcome, and their sums."""
        for (campaign, old, new), letters in moves.items():
            self._tallies[campaign].count(self._turn, old, new, letters)

    async def free_waiting(self, campaign: int, letters: Sequence[int]) -> None:
        """Let letters go that wait for these letters by their key."""
        await campaigns.free_behind(self._turn, self._tallies[campaign], letters)

    async def hold_waiting(self, campaign: int, letters: Sequence[int], now: datetime) -> None:
        """Hold all letters back that wait behind these letters by their key."""
        await campaigns.hold_behind(self._turn, self._tallies[campaign], letters, now)

    async def rekey_sums(self) -> None:
        """Make sums of letters and campaigns anew with the first key, where they fit."""
        await letters_verify.rekey(self._turn)

    async def find_sealed(self, after: str) -> tuple[list[tuple[int, SealedLetter]], str | None]:
        """Return some letters behind `after` with their seals, and where to continue."""
        return await letters_verify.letters(self._there, self._session, after)

    async def write_seals(self, seq: int, letter: SealedLetter, seals: Seals) -> None:
        """Write new seals of a letter."""
        await letters_verify.write_seals(self._turn, letter, seals)

    def _hold(self, tally: CampaignTally) -> CampaignTally:
        """Remember the counts of a campaign; they are written when the turn ends."""
        if tally.seq not in self._tallies:
            self._tallies[tally.seq] = tally
            self._turn.at_end(lambda: tally.write(self._turn))
        return self._tallies[tally.seq]
