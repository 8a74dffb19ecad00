"""
The digests of the bodies that a key was claimed with, in its document.

    [{generation: 0, digest: ...}, {generation: 1, digest: ...}]

Without the field they are not known.
"""

from typing import Any

from deadletter.ports.ledger import REMEMBERED

from .schema import Document


def digests(digest: bytes | None, generation: int) -> Document:
    """The field of a key that is taken up with this body."""
    if digest is None:
        return {}
    of_others: Any = {
        "$filter": {
            "input": {"$ifNull": ["$digests", []]},
            "cond": {"$ne": ["$$this.generation", generation]},
        }
    }
    own = {"generation": generation, "digest": {"$literal": digest}}
    known = {"$slice": [{"$concatArrays": [of_others, [own]]}, -REMEMBERED]}
    # A key from before digests were kept: what it was finished with stays unknown.
    is_unknown = {
        "$and": [
            {"$ne": [{"$type": "$state"}, "missing"]},
            {"$lt": ["$generation", generation]},
            {"$not": [{"$isArray": "$digests"}]},
        ]
    }
    return {"digests": {"$cond": [is_unknown, "$$REMOVE", known]}}


def is_body(digest: bytes | None) -> Any:
    """Tell whether the last claim of the key had this body; unknown counts as yes."""
    if digest is None:
        return True
    last = {"$arrayElemAt": ["$digests.digest", -1]}
    return {"$eq": [{"$ifNull": [last, {"$literal": digest}]}, {"$literal": digest}]}


def known_digests(found: Document) -> bytes | None:
    """The digests of a key's document, one behind the other."""
    return b"".join(one["digest"] for one in found.get("digests", ())) or None
