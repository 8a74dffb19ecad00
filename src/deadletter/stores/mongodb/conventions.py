"""
What an office is told once, for all processes that open it: `?documents=` and `?review=`.

Both are stored in the document of the office, so that the command, the server and other workers
follow them without naming them in their URLs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from deadletter.core.attempts import read
from deadletter.core.letter import DeadLetter, ReviewOrder, State
from deadletter.core.letter_filing import Known
from deadletter.profiles.courier_documents import CourierDocuments
from deadletter.profiles.documents import DocumentFields, KeyFields

from .address import Options
from .schema import OFFICE, Collections, Document

_FIELDS: Final[Mapping[str, DocumentFields]] = MappingProxyType(
    {one.name: one for one in (CourierDocuments(),)}
)


class Conventions(Struct, frozen=True):
    """The fields that documents have for others, and the order of reviews."""

    documents: str = ""
    review: ReviewOrder = ReviewOrder.FREE

    @property
    def keys(self) -> KeyFields | None:
        """Return the fields of idempotency keys, if they have any for others."""
        fields = _FIELDS.get(self.documents)
        return None if fields is None else fields.keys


async def settle_conventions(there: Collections, options: Options) -> Conventions:
    """Store what the URL says; return what the office has been told by now."""
    told = {"documents": options.documents, "review": options.review}
    if new := {name: value for name, value in told.items() if value}:
        await there.office.update_one({"_id": OFFICE}, {"$set": new})
    office = await there.office.find_one({"_id": OFFICE}) or {}
    return Conventions(office.get("documents", ""), ReviewOrder(office.get("review", "free")))


def letter_fields(office: Mapping[str, Any], letter: DeadLetter) -> Document:
    """Return the fields of a new letter, by the document of the office."""
    fields = _FIELDS.get(office.get("documents", ""))
    return {} if fields is None else fields.letter(letter)


def death_fields(office: Mapping[str, Any], known: Known) -> Document:
    """Return the fields of a letter that died again."""
    fields = _FIELDS.get(office.get("documents", ""))
    return {} if fields is None else fields.death(known.head, read(known.history))


def state_fields(office: Mapping[str, Any], state: State) -> Document:
    """Return the fields of a letter in another state."""
    fields = _FIELDS.get(office.get("documents", ""))
    return {} if fields is None else fields.state(state)
