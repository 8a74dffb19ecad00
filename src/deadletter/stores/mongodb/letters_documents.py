"""
Letters as documents, and documents as letters.

A document is at most 16 MB, and a body may be more: what a search looks at stays
with its letter, the rest is in parts of its own. No content is ever the name of a
field.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, overload

from msgspec.structs import replace
from pymongo.asynchronous.client_session import AsyncClientSession

from deadletter.core.audit import SealedLetter, SealedMessage
from deadletter.core.errors import Refused
from deadletter.core.failure import Reason, Trouble
from deadletter.core.ids import body_digest
from deadletter.core.letter import DeadLetter, LetterHead, State
from deadletter.core.letter_filing import Known, message_seal, story_seal
from deadletter.core.message import Message
from deadletter.core.packing import letter_of, pack_rest, unpack_message
from deadletter.core.query.fields import fold
from deadletter.core.query.match import LOOK
from deadletter.core.replay_rules import sortable_position
from deadletter.core.seals import Sealing
from deadletter.core.text import shown, stored

from .schema import LARGE, Collections, Document

# Times as documents hold them.
#
# A date in BSON ends at milliseconds, and ours do not: what must be exact is a number
# of microseconds. Dates are written beside them for people and for the server's own
# expiry.

_START: Final = datetime.min.replace(tzinfo=UTC)  # no time is before it
_MICROSECOND: Final = timedelta(microseconds=1)
_HALF: Final = 8  # bytes


@overload
def number(time: datetime) -> int: ...
@overload
def number(time: datetime | None) -> int | None: ...
def number(time: datetime | None) -> int | None:
    """Microseconds since the first of all times."""
    return None if time is None else (time - _START) // _MICROSECOND


@overload
def time(number: int) -> datetime: ...
@overload
def time(number: int | None) -> datetime | None: ...
def time(number: int | None) -> datetime | None:
    """The time that a number stands for."""
    return None if number is None else _START + number * _MICROSECOND


def place(dead_at: datetime, seq: int = 0) -> bytes:
    """
    Return the position of a letter in lists, as bytes that sort like it.

    One value instead of two, so that a list can be read on from any place by a
    plain range of an index.
    """
    return number(dead_at).to_bytes(_HALF, "big") + seq.to_bytes(_HALF, "big")


def placed(place: bytes) -> tuple[datetime, int]:
    """Return when the letter at a position died, and its number."""
    died, seq = place[:_HALF], place[_HALF:]
    return time(int.from_bytes(died, "big")), int.from_bytes(seq, "big")


INLINE: Final = LOOK + 1  # bytes of a body: one more than any search looks at
PART: Final = 8_000_000  # bytes of a body in one document of its own
_MOST: Final = 8  # parts of one body: its letter is kept in one transaction

HEAD: Final = dict.fromkeys(
    ("dead_at", "digest", "frame", "rest", "body", "history", "seal", "story_seal", *LARGE), 0
)
"""What is left out where heads are read."""

OPENED: Final = dict.fromkeys(("dead_at", "frame", "history", "seal", "story_seal", *LARGE), 0)
"""What is left out where a search looks into letters."""

WHOLE: Final = dict.fromkeys(("dead_at", *LARGE), 0)
KNOWN: Final = dict.fromkeys(("dead_at", "rest", "body", *LARGE), 0)

# In a document they are called what they are called in a head.
_TEXTS: Final = (
    *("source", "message_id", "partition", "key", "business_key", "reason_text"),
    *("code", "error_type", "error_text", "fingerprint", "consumer", "version"),
    "trace_id",
)
_NUMBERS: Final = ("attempts", "replays", "conflict", "size", "revision")
_UNOPENED: Final = Message(id="", body=b"", sent_at=datetime.min.replace(tzinfo=UTC))


def document_of(known: Known, letter: DeadLetter, seq: int, sealing: Sealing) -> Document:
    """A new letter, short of what goes into parts."""
    rest = pack_rest(letter)
    return {
        "_id": known.head.id,
        "seq": seq,
        **changing(known, seq, sealing),
        "seal": message_seal(known, letter, rest, sealing),
        "digest": known.current,
        **({} if known.edited is None else {"died": known.digest}),
        "rest": rest,
        "body": letter.message.body[:INLINE],
        "sent": number(letter.message.sent_at),
        "sent_place": sortable_position(letter.position) or "",
    }


def changing(known: Known, seq: int, sealing: Sealing) -> Document:
    """Return the fields that may change when a letter dies again."""
    head = known.head
    texts = {name: getattr(head, name) for name in _TEXTS}
    document: Document = {name: stored(text) for name, text in texts.items() if text is not None}
    # Whether some text of it is not stored as it is.
    odd = any(document.get(name) != text for name, text in texts.items())
    return document | {
        "odd": odd,
        **{name: getattr(head, name) for name in _NUMBERS},
        "state": head.state.value,
        "reason": head.reason.value,
        "trouble": head.trouble.value,
        "error_name": stored(fold(head.error_name)),  # to be found by
        "dead_at": head.dead_at,  # for people
        "place": place(head.dead_at, seq),
        "first_failed": number(head.first_failed_at),
        "frame": octets(known.frame),
        "history": octets(known.history),
        "generation": known.generation,
        "spent": known.spent,
        "story_seal": story_seal(known, sealing),
    }


def parts_of(letter: str, body: bytes, seq: int) -> list[Document]:
    """Return the parts of a body that do not fit into its letter."""
    starts = range(INLINE, len(body), PART)
    if len(starts) > _MOST:
        raise Refused(
            f"the body of letter {letter} has {len(body):,} bytes: MongoDB keeps at"
            f" most {INLINE + _MOST * PART:,}; have its producer send a reference to it"
        )
    return [
        {"letter": seq, "n": n, "data": body[start : start + PART]}
        for n, start in enumerate(starts)
    ]


def head_of(document: Mapping[str, Any]) -> LetterHead:
    """The head in a document."""
    texts = {name: document.get(name) for name in _TEXTS}
    if document["odd"]:
        texts = {name: shown(text) for name, text in texts.items()}
    dead_at, _ = placed(document["place"])
    return LetterHead(
        id=document["_id"],
        state=State(document["state"]),
        reason=Reason(document["reason"]),
        trouble=Trouble(document["trouble"]),
        first_failed_at=time(document["first_failed"]),
        dead_at=dead_at,
        **{name: document[name] for name in _NUMBERS},
        **texts,  # type: ignore[arg-type]  # those that must be there are
    )


def known_of(document: Mapping[str, Any], cap: int | None) -> Known:
    """Return the known part of a letter, read as `KNOWN`."""
    return Known(
        seq=document["seq"],
        head=head_of(document),
        digest=document.get("died", document["digest"]),
        edited=document["digest"] if "died" in document else None,
        history=document["history"].decode("utf-8", "surrogatepass"),
        frame=document["frame"].decode("utf-8", "surrogatepass"),
        generation=document["generation"],
        spent=document["spent"],
        cap=cap,
    )


def sealed(
    document: Mapping[str, Any],
    body: bytes,
    original: tuple[Mapping[str, Any], bytes] | None,
    generations: Sequence[int],
) -> SealedLetter:
    """All of a letter as it is stored, with the body that died and its replays."""
    known = known_of(document, None)
    return SealedLetter(
        head=known.head,
        message=_sealed_message(document, body),
        original=None if original is None else _sealed_message(*original),
        frame=known.frame,
        history=known.history,
        generation=known.generation,
        spent=known.spent,
        seal=document.get("story_seal"),
        generations=tuple(generations),
    )


def _sealed_message(document: Mapping[str, Any], body: bytes) -> SealedMessage:
    return SealedMessage(document["digest"], document["rest"], body, document.get("seal"))


def unopened(document: Mapping[str, Any]) -> DeadLetter:
    """A letter without its contents, read as `HEAD`."""
    return DeadLetter(head=head_of(document), message=_UNOPENED)


def opened(document: Mapping[str, Any]) -> DeadLetter:
    """A letter as far as a search looks at it, read as `OPENED`."""
    return letter_of(
        head_of(document), body=document["body"], history="", frame="", rest=document["rest"]
    )


def whole(document: Mapping[str, Any], body: bytes) -> DeadLetter:
    """All of a letter, read as `WHOLE`, with its body from `bodies`."""
    check_body(document, body)
    return letter_of(
        head_of(document),
        body=body,
        history=document["history"].decode("utf-8", "surrogatepass"),
        frame=document["frame"].decode("utf-8", "surrogatepass"),
        rest=document["rest"],
    )


def check_body(document: Mapping[str, Any], body: bytes) -> None:
    """Refuse a body that is not the one that was kept."""
    if body_digest(body) != document["digest"]:
        raise Refused(
            f"the body of letter {document['_id']} is not the one that was kept: the"
            " database is damaged; run verify, and purge the letter"
        )


async def bodies(
    there: Collections, session: AsyncClientSession, documents: Iterable[Document]
) -> dict[int, bytes]:
    """Whole bodies by the numbers of their letters."""
    found = {one["seq"]: one["body"] for one in documents}
    large = [seq for seq, body in found.items() if len(body) == INLINE]
    if large:
        rest: dict[int, list[bytes]] = {seq: [found[seq]] for seq in large}
        parts = there.parts.find({"letter": {"$in": large}}, session=session)
        async for part in parts.sort([("letter", 1), ("n", 1)]):
            rest[part["letter"]].append(part["data"])
        found |= {seq: b"".join(some) for seq, some in rest.items()}
    return found


async def get(
    there: Collections, session: AsyncClientSession, ids: Sequence[str]
) -> list[DeadLetter]:
    """Whole letters, in the order asked for; those that exist."""
    asked = {"_id": {"$in": [stored(id_) for id_ in dict.fromkeys(ids)]}}
    found = await there.letters.find(asked, WHOLE, session=session).to_list()
    by_seq = await bodies(there, session, found)
    by_id = {one["_id"]: whole(one, by_seq[one["seq"]]) for one in found}
    edited = [one["_id"] for one in found if "died" in one]
    for id_, message in (await originals(there, session, edited)).items():
        by_id[id_] = replace(by_id[id_], original=message)
    return [by_id[id_] for id_ in ids if id_ in by_id]


async def originals(
    there: Collections, session: AsyncClientSession, ids: Sequence[str]
) -> dict[str, Message]:
    """The messages that died, of those letters that were edited since."""
    if not ids:
        return {}
    asked = {"_id": {"$in": [stored(id_) for id_ in ids]}}
    found = await there.originals.find(asked, session=session).to_list()
    by_seq = await bodies(there, session, found)
    for one in found:
        check_body(one, by_seq[one["seq"]])
    return {one["_id"]: unpack_message(one["rest"], by_seq[one["seq"]]) for one in found}


def octets(text: str) -> bytes:
    """Any text as bytes, also text that is none."""
    return text.encode("utf-8", "surrogatepass")
