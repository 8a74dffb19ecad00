"""
Where a letter was found, written on its message so that it can go back as it was.

It stands behind the producer's headers and never leaves the office: a copy goes
back without it, with five headers instead by which a consumer that fails again leads
back to the letter. The last of them signs the others. Where there is little room for
headers they are packed into one. None of them names a server: which one a copy is sent
to is for people and configuration to say.
"""

from typing import Final

import msgspec
from msgspec import Struct, structs

from ..documents import encode_document
from ..message import Headers, Lineage, Message
from .values import number

NAME: Final = "dlq-found"
REPLAY_OF: Final = "dlq-replay-of"
_COUNT: Final = "dlq-replay-count"
_CAMPAIGN: Final = "dlq-replay-campaign"
REPLAY_TO: Final = "dlq-replay-to"
_SIGNATURE: Final = "dlq-replay-signature"
PACKED: Final = "dlq-replay"
LINEAGE: Final = frozenset(
    {REPLAY_OF, _COUNT, _CAMPAIGN, REPLAY_TO, _SIGNATURE, PACKED}
)
_SEPARATOR: Final = ";"  # no letter id, campaign or signature has one
_ID_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_MOST_REPLAYS: Final = 10_000
_LONGEST_NAME: Final = 1_000  # characters of a mailbox


class Origin(Struct, frozen=True):
    """
    The kind of place a letter was found in, its name there, and what else it had.

    `said` is what its dialects wrote beyond the fields of the letter, for people.
    `headers` are those of the dialects that `said` repeats in words, as they were.
    `claim` is the mailbox that its headers name, where nobody vouches for that.
    `server` is the one it was drained from: a name of the settings, or a URL without
    secrets. It is only ever compared with what settings name.
    """

    kind: str
    place: str
    dialect: str = ""
    raw: bytes = b""
    said: dict[str, str] = {}
    claim: str = ""
    server: str = ""
    headers: dict[str, str] = {}


_NOWHERE: Final = Origin("", "")
_decode: Final = msgspec.json.Decoder(Origin).decode


def marked(message: Message, origin: Origin) -> Message:
    """The message with a note on where it was found."""
    return structs.replace(
        message, headers=(*message.headers, (NAME, encode_document(origin)))
    )


def fenced(message: Message) -> Message:
    """
    The message that a worker buries.

    Where its producer has written such a note, another one is put behind it, which
    says that no intake has found it.
    """
    if not message.headers or message.headers[-1][0] != NAME or message.lineage:
        return message
    return marked(message, _NOWHERE)


def origin_of(message: Message) -> Origin | None:
    """Where a message was found; None when no intake has found it."""
    mark = _mark(message)
    return mark if mark is not None and mark.kind else None


def unmarked(message: Message) -> Message:
    """The message as its producer sent it."""
    if _mark(message) is None:
        return message
    return structs.replace(message, headers=message.headers[:-1])


def _mark(message: Message) -> Origin | None:
    if not message.headers or message.headers[-1][0] != NAME:
        return None
    try:
        return _decode(message.headers[-1][1])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def lineage_headers(lineage: Lineage | None) -> Headers:
    """What goes with a copy so that it finds back to its letter."""
    if lineage is None:
        return ()
    return (
        (REPLAY_OF, lineage.letter_id.encode()),
        (_COUNT, str(lineage.generation).encode()),
        (_CAMPAIGN, lineage.campaign.encode()),
        (REPLAY_TO, lineage.mailbox.encode()),
        (_SIGNATURE, lineage.signature.encode()),
    )


def packed_lineage(lineage: Lineage, *, with_mailbox: bool = True) -> str:
    """
    Return what goes with a copy as one text, for places with room for one.

    Without the mailbox it has at most 128 characters, and the place has to say itself
    which mailbox the copy was sent to.
    """
    return _SEPARATOR.join(
        (
            lineage.letter_id,
            str(lineage.generation),
            lineage.campaign,
            lineage.signature,
            lineage.mailbox if with_mailbox else "",
        )
    )


def unpacked_lineage(text: str) -> Lineage | None:
    """Read what `packed_lineage` wrote; it counts once its signature was verified."""
    parts = text.split(_SEPARATOR, 4)
    if len(parts) != 5:
        return None
    letter, count, campaign, signature, mailbox = (
        part.encode("utf-8", "replace") for part in parts
    )
    return _lineage(
        {
            REPLAY_OF: letter,
            _COUNT: count,
            _CAMPAIGN: campaign,
            REPLAY_TO: mailbox,
            _SIGNATURE: signature,
        }
    )


def lineage_of(headers: Headers) -> Lineage | None:
    """
    The letter that a copy was made of, as its headers have it.

    It counts only once its signature was verified, see `core.signing`.
    """
    told = {name: value for name, value in headers if name in LINEAGE}
    if PACKED in told and REPLAY_OF not in told:
        return unpacked_lineage(told[PACKED].decode("utf-8", "replace"))
    return _lineage(told)


def _lineage(told: dict[str, bytes]) -> Lineage | None:
    letter = told.get(REPLAY_OF, b"").decode("utf-8", "replace")
    generation = number(told.get(_COUNT, b"").decode("utf-8", "replace"))
    if len(letter) != 24 or not set(letter) <= _ID_LETTERS:
        return None
    if generation is None or not 1 <= generation <= _MOST_REPLAYS:
        return None
    campaign = told.get(_CAMPAIGN, b"").decode("utf-8", "replace")[:64]
    return Lineage(
        letter_id=letter,
        generation=generation,
        campaign=campaign,
        mailbox=told.get(REPLAY_TO, b"").decode("utf-8", "replace")[:_LONGEST_NAME],
        signature=told.get(_SIGNATURE, b"").decode("utf-8", "replace")[:100],
    )
