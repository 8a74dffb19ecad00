"""
The collections, and what is indexed in them.

Every list of letters is ordered by `place`, see `letters_documents.place`. The order of
the fields in an index is: equal values first, then the place.
"""

from contextlib import suppress
from typing import Any, Final

from msgspec import Struct
from pymongo import IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import DuplicateKeyError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.write_concern import WriteConcern

from deadletter.core.errors import ConfigError
from deadletter.core.seals import NO_KEY

VERSION: Final = 1
OFFICE: Final = "office"  # the one document that says how many, and where things end

SAFELY: Final = WriteConcern(w="majority", j=True)
"""Returns once most members of the replica set have it in their journals."""

Document = dict[str, Any]
Collection = AsyncCollection[Document]

_EMPTY: Final[Document] = {
    "version": VERSION,
    "turn": 0,  # grows with every transaction: one at a time
    "seq": 0,  # numbers given to letters and campaigns
    "kept": 0,
    "purged": 0,
    "expired": 0,
    "audit_seq": 0,
    "audit_hash": "",
    "marks_key": NO_KEY,  # of the sums that follow, see core/seals.py
    "letter_marks": 0,
    "deaths": 0,
    "death_marks": 0,
}


class Collections(Struct, frozen=True):
    """All that is ours in a database."""

    letters: Collection
    parts: Collection  # what of large bodies does not fit into a letter
    originals: Collection  # what died, of letters edited since
    groups: Collection
    rules: Collection  # where letters of groups belong, as people said
    sources: Collection  # how many letters of each state
    versions: Collection  # when each was first seen
    kinds: Collection  # how many groups were made in a day
    campaigns: Collection
    items: Collection
    slices: Collection  # letters of kept plans, with their verdicts
    audit: Collection
    office: Collection
    ledger: Collection
    windows: Collection  # when brakes were open
    searches: Collection  # with a name


LARGE: Final = ("payloadSnapshot", "attemptHistory")
"""Fields for others that are left out where letters are read, see `conventions`."""

_NAMES: Final = {
    "letters": "dead_letter_events",
    "parts": "dead_letter_parts",
    "originals": "dead_letter_originals",
    "groups": "dead_letter_groups",
    "rules": "dead_letter_group_rules",
    "sources": "dead_letter_sources",
    "versions": "dead_letter_versions",
    "kinds": "dead_letter_group_kinds",
    "campaigns": "dead_letter_campaigns",
    "items": "dead_letter_campaign_items",
    "slices": "dead_letter_campaign_slices",
    "audit": "dead_letter_audit",
    "office": "dead_letter_office",
    "ledger": "processed_events",
    "windows": "dead_letter_brake_windows",
    "searches": "dead_letter_searches",
}


def _by(*fields: str, rare: bool = False, name: str = "", **how: Any) -> IndexModel:
    name = name or f"by_{fields[0]}"
    if rare:  # most letters have none: those are not in it
        how["partialFilterExpression"] = {fields[0]: {"$exists": True}}
    return IndexModel([(field, 1) for field in fields], name=name, **how)


_INDEXES: Final[dict[str, list[IndexModel]]] = {
    "letters": [
        _by("place"),
        _by("state", "place"),
        _by("source", "place"),
        _by("fingerprint", "place"),
        _by("error_name", "place"),
        _by("message_id", "place"),
        _by("key", "place", rare=True),
        _by("business_key", "place", rare=True),
        _by("trace_id", "place", rare=True),
    ],
    "parts": [_by("letter", "n", unique=True)],
    "originals": [_by("seq", unique=True)],
    "groups": [
        _by("last_seen", "_id", name="by_time"),
        _by("source", "last_seen", "_id", name="of_source"),
    ],
    "campaigns": [_by("seq", unique=True)],
    "slices": [_by("campaign", "place", unique=True)],
    "items": [
        _by("campaign", "ordinal", unique=True),
        _by("letter", "campaign", unique=True),
        _by("outcome", "campaign", "ordinal"),
        _by("follows", "campaign", rare=True),
        _by("head", "campaign", rare=True),
        _by("ready", "campaign", "ordinal", rare=True),
    ],
    "audit": [_by("target", "_id"), _by("actor", "_id"), _by("action", "_id")],
    # The server drops what has expired by itself, within a minute.
    "ledger": [_by("expire_at", expireAfterSeconds=0)],
    "windows": [_by("mailbox", "_id")],
}


def collections(database: AsyncDatabase[Document], prefix: str) -> Collections:
    """Our collections: what is read has been confirmed, what is written will be."""
    return Collections(
        **{
            ours: database.get_collection(
                prefix + name,
                read_preference=ReadPreference.PRIMARY,
                read_concern=ReadConcern("majority"),
                write_concern=SAFELY,
            )
            for ours, name in _NAMES.items()
        }
    )


async def is_there(there: Collections) -> bool:
    """Return whether somebody has made our collections."""
    return await there.office.find_one({"_id": OFFICE}) is not None


async def prepare(there: Collections) -> None:
    """Make what is missing. Any number may do so at once."""
    found = await there.office.find_one({"_id": OFFICE})
    if found is not None and found["version"] > VERSION:
        raise ConfigError(
            f"the collections are of version {found['version']}, and this deadletter"
            f" knows {VERSION}: upgrade deadletter"
        )
    for name, indexes in _INDEXES.items():
        collection: Collection = getattr(there, name)
        await collection.create_indexes(indexes)
    # A first document makes a collection, which transactions had better find made.
    await _put(there.sources, {"_id": "", "states": {}})
    await _put(there.rules, {"_id": "", "rules": []})
    await _put(there.searches, {"_id": ""})
    await _put(there.kinds, {"_id": "", "day": 0, "made": 0})
    await _put(there.versions, {"_id": {"source": "", "version": ""}, "first_seen": 0})
    await _put(there.office, {"_id": OFFICE, **_EMPTY})


async def _put(collection: Collection, first: Document) -> None:
    with suppress(DuplicateKeyError):  # another process was faster
        await collection.update_one({"_id": first["_id"]}, {"$setOnInsert": first}, upsert=True)
