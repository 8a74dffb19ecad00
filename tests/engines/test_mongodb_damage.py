"""Verify notices every damage done to a MongoDB database behind our back."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from damages import (
    BY_SUMS,
    DAMAGES,
    KEY,
    MAILBOXES,
    OTHER_KEY,
    TABLES,
    findings,
    furnish_office,
    sealed_anew,
    use,
)
from deadletter.stores.mongodb.engine import MongodbEngine
from deadletter.stores.mongodb.schema import Collections
from deadletter.testing.fakes import FakeClock
from deadletter.testing.letters_bench import a_letter
from engines.mongodb_rig import database_of, emptied, on_clock
from servers import Server

Damage = Callable[[Collections, dict[str, Any]], Awaitable[None]]


def _on(collection: str, name: str, **change: Any) -> Damage:
    """Change one document of a letter, a group or the office."""

    async def damage(there: Collections, letters: dict[str, Any]) -> None:
        changed = await getattr(there, collection).update_one(
            {"_id": letters.get(name, {"_id": name})["_id"]},
            {f"${how}": fields for how, fields in change.items()},
        )
        assert changed.modified_count, "nothing was damaged"

    return damage


def _all(*damages: Damage) -> Damage:
    async def damage(there: Collections, letters: dict[str, Any]) -> None:
        for one in damages:
            await one(there, letters)

    return damage


def _copied(*fields: str) -> Damage:
    """Give the first letter what the second one has."""

    async def damage(there: Collections, letters: dict[str, Any]) -> None:
        copied = {field: letters["second"][field] for field in fields}
        await _on("letters", "first", set=copied)(there, letters)

    return damage


def _item(of: str, change: dict[str, Any]) -> Damage:
    async def damage(there: Collections, letters: dict[str, Any]) -> None:
        course = await there.campaigns.find_one({"_id": "c-1"})
        assert course is not None
        which = {"letter": letters[of]["seq"], "campaign": course["seq"]}
        assert (await there.items.update_one(which, change)).modified_count

    return damage


def _replaced_item(of: str) -> Damage:
    async def damage(there: Collections, letters: dict[str, Any]) -> None:
        other = letters["first"]
        change = {"$set": {"letter": other["seq"], "letter_id": other["_id"]}}
        await _item(of, change)(there, letters)

    return damage


async def _take_out(there: Collections, letters: dict[str, Any]) -> None:
    await there.items.delete_one({"letter": letters["replayed"]["seq"]})
    changes = {"$inc": {"items": -1, "counts.confirmed": -1}}
    await there.campaigns.update_one({"_id": "c-1"}, changes)


async def _put_in(there: Collections, letters: dict[str, Any]) -> None:
    item = await there.items.find_one({"letter": letters["failed"]["seq"]})
    assert item is not None
    other = letters["second"]
    new = {"ordinal": 9, "letter": other["seq"], "letter_id": other["_id"]}
    del item["_id"]
    await there.items.insert_one(item | new | {"generation": 0})
    changes = {"$inc": {"items": 1, "counts.failed": 1}}
    await there.campaigns.update_one({"_id": "c-1"}, changes)


async def _no_campaign(there: Collections, letters: dict[str, Any]) -> None:
    await there.items.delete_many({})
    assert (await there.campaigns.delete_many({})).deleted_count


async def _no_idle_campaign(there: Collections, letters: dict[str, Any]) -> None:
    found = await there.campaigns.find_one_and_delete({"_id": "c-idle"})
    assert found is not None
    await there.items.delete_many({"campaign": found["seq"]})


async def _delete(there: Collections, letters: dict[str, Any]) -> None:
    await there.letters.delete_one({"_id": letters["first"]["_id"]})
    await _on("office", "office", inc={"kept": -1})(there, letters)
    less = {"open": -1, "states.pending": -1}
    await _on("groups", "f-1", inc=less)(there, letters)
    await _on("sources", "orders", inc={"states.pending": -1})(there, letters)


_MOVED = _all(_on("groups", "f-1", inc={"total": 1}), _on("groups", "f-2", inc={"total": -1}))
_ALL: dict[str, Damage] = {
    "body and digest swapped together": _copied("body", "digest"),
    "headers swapped": _copied("rest"),
    "history emptied": _on("letters", "first", set={"history": b""}),
    "attempts changed": _on("letters", "first", set={"attempts": 9}),
    "another source": _on("letters", "first", set={"message_id": "m-x"}),
    "one death more in a group": _on("groups", "f-1", inc={"total": 1}),
    "one death less in a group": _on("groups", "f-1", inc={"total": -1}),
    "deaths moved between groups": _MOVED,
    "kept and purged both one more": _on("office", "office", inc={"kept": 1, "purged": 1}),
    "kept and expired both one less": _on("office", "office", inc={"kept": -1, "expired": -1}),
    "a campaign's actor changed": _on("campaigns", "c-1", set={"actor": "mallory"}),
    "a campaign's reason changed": _on("campaigns", "c-1", set={"reason": "a drill"}),
    "a campaign's search changed": _on("campaigns", "c-1", set={"query": "is:closed"}),
    "a campaign deleted": _no_campaign,
    "an item's outcome changed": _all(
        _item("replayed", {"$set": {"outcome": "failed"}}), lambda there, _: _shift_outcome(there)
    ),
    "an item taken out": _take_out,
    "an item put in": _put_in,
    "an item's letter replaced": _replaced_item("failed"),
    "a planned item replaced": _replaced_item("planned"),
    "a letter deleted with its counters": _all(_delete, _on("groups", "f-1", inc={"total": -1})),
    "a letter deleted, and its death kept": _delete,
    "a campaign deleted that had not begun": _no_idle_campaign,
    "one more kept": _on("office", "office", inc={"kept": 1}),
    "one less kept": _on("office", "office", inc={"kept": -1}),
    "one letter more of a source": _on("sources", "orders", inc={"states.pending": 1}),
    "one letter less of a source": _on("sources", "orders", inc={"states.pending": -1}),
    "one letter more in a group": _on("groups", "f-2", inc={"states.pending": 1}),
    "one open letter less in a group": _on("groups", "f-2", inc={"open": -1}),
    "one letter more of an outcome": _on("campaigns", "c-1", inc={"counts.confirmed": 1}),
    "replays changed": _on("letters", "replayed", set={"replays": 3}),
    "replays of one never replayed": _on("letters", "first", set={"replays": 1}),
}


async def _shift_outcome(there: Collections) -> None:
    shift = {"$inc": {"counts.confirmed": -1, "counts.failed": 1}}
    await there.campaigns.update_one({"_id": "c-1"}, shift)


@pytest.fixture
async def engine(mongodb_server: Server) -> AsyncIterator[MongodbEngine]:
    engine = await on_clock(await emptied(mongodb_server.url), FakeClock())
    yield engine
    await engine.close()


async def _furnished(engine: MongodbEngine) -> dict[str, Any]:
    """Fill the office; the documents of some letters, by name."""
    assert engine.letters is not None
    letters = await furnish_office(engine.letters)
    there = database_of(engine).there
    found = {name: await there.letters.find_one({"_id": id_}) for name, id_ in letters.items()}
    assert not await findings(engine)
    return found


def test_no_damage_is_left_out() -> None:
    assert DAMAGES.keys() - MAILBOXES - TABLES <= _ALL.keys()


@pytest.mark.parametrize("damage", list(_ALL))
async def test_every_damage_is_noticed(engine: MongodbEngine, damage: str) -> None:
    letters = await _furnished(engine)

    await _ALL[damage](database_of(engine).there, letters)

    assert await findings(engine)


@pytest.mark.parametrize("damage", BY_SUMS)
async def test_sums_with_a_key_show_damage_as_well(engine: MongodbEngine, damage: str) -> None:
    use(engine, KEY)
    letters = await _furnished(engine)

    await _ALL[damage](database_of(engine).there, letters)

    assert "without the key" not in await findings(engine)
    assert await findings(engine)


async def test_a_key_set_later_is_used_once_somebody_accepts_what_is_there(
    engine: MongodbEngine,
) -> None:
    await _furnished(engine)
    assert engine.letters is not None
    use(engine, KEY)
    assert "without the key" in await findings(engine)

    await sealed_anew(engine)
    await engine.letters.keep([a_letter()])
    assert not await findings(engine)

    use(engine, OTHER_KEY, KEY)
    await sealed_anew(engine)
    await engine.letters.keep([a_letter()])
    use(engine, OTHER_KEY)
    assert not await findings(engine)


async def test_offices_from_before_have_no_seals_until_somebody_makes_them(
    engine: MongodbEngine,
) -> None:
    await _furnished(engine)
    there = database_of(engine).there
    sums = dict.fromkeys(("marks_key", "letter_marks", "deaths", "death_marks"), "")
    await there.office.update_one({}, {"$unset": sums})
    await there.campaigns.update_many({}, {"$unset": {"marks": "", "marks_key": ""}})
    seals = {"$unset": {"seal": "", "story_seal": ""}}
    await there.letters.update_many({}, seals)
    assert engine.letters is not None
    await engine.letters.keep([a_letter()])
    assert not await findings(engine)

    use(engine, KEY)
    assert "without the key" in await findings(engine)
    await sealed_anew(engine)

    assert not await findings(engine)
