"""The format of messages on a Redis server."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
from msgspec import structs

from deadletter.brokers.redis_common.scripts import EPOCH, when
from deadletter.core.ids import CORRUPT
from deadletter.core.message import Delivery, Message, escaped, restored

_NONE: Final = b"-"  # in a state
_MARK: Final = b"\xa3sum\xce"  # the last field: a checksum of all that is before it
_ROOM: Final = 0xFFFF_FFFF  # of four bytes, for the checksum
_WHOLE: Final = 0x2144_DF1C  # the CRC of anything with its own CRC, low byte first

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Message]).decode
_FIELDS: Final = Message.__struct_fields__
_USUAL: Final = structs.astuple(Message(id="", body=b"", sent_at=EPOCH))[3:]


def packed(message: Message) -> bytes:
    """Return a message as it is stored, with a checksum, without default values."""
    values = structs.astuple(message)
    fields = {"id": values[0], "body": values[1], "sent_at": values[2]}
    if values[3:] != _USUAL:
        rest = zip(_FIELDS[3:], values[3:], _USUAL, strict=True)
        fields |= {name: value for name, value, usual in rest if value != usual}
    try:
        fields["sum"] = _ROOM
        content = _encode(fields)[:-4]
    except UnicodeEncodeError:
        return packed(escaped(message))
    return content + crc32(content).to_bytes(4, "little")


def sent_at(stored: bytes) -> datetime | None:
    """Return when a stored message was sent; None if it is unreadable."""
    try:
        return _unpacked([stored])[0].sent_at
    except msgspec.MsgspecError:
        return None


def deliveries(
    mailbox: str, token: str, said: Sequence[Any], *, first: datetime | None
) -> list[Delivery]:
    """
    Return the deliveries of a claim: sequence numbers, messages, states and histories.

    Messages that were never claimed before have no states: it is their first attempt,
    made at `first`. An unreadable message is delivered with its stored bytes as body.
    """
    seqs, stored, states, stories = said
    corrupt = not all(crc32(one) == _WHOLE or _has_no_sum(one) for one in stored)
    try:
        messages = [] if corrupt else _unpacked(stored)
    except msgspec.MsgspecError as error:
        if len(seqs) == 1:
            return [_damaged(mailbox, token, said, first, str(error))]
        corrupt = True
    if corrupt:
        if len(seqs) > 1:
            alone = [[part[n : n + 1] for part in said] for n in range(len(seqs))]
            return [
                delivery
                for one in alone
                for delivery in deliveries(mailbox, token, one, first=first)
            ]
        return [_corrupt(mailbox, token, said, first)]
    if not states:
        return [
            Delivery(
                message=message, mailbox=mailbox, first_received_at=first, receipt=(seq, token)
            )
            for seq, message in zip(seqs, messages, strict=True)
        ]
    usual = Delivery(message=messages[0], mailbox=mailbox, first_received_at=first, receipt=None)
    told = stories or [None] * len(seqs)
    return [
        _delivery(structs.replace(usual, message=message, receipt=(seq, token)), state, story)
        for seq, message, state, story in zip(seqs, messages, states, told, strict=True)
    ]


def _unpacked(stored: Sequence[bytes]) -> list[Message]:
    found = _decode(b"\xdd" + len(stored).to_bytes(4) + b"".join(stored))
    return [restored(message) if message.headers else message for message in found]


def _has_no_sum(stored: bytes) -> bool:
    """Return whether a message was stored without a checksum; it is accepted as it is."""
    return stored[-9:-4] != _MARK


def _corrupt(mailbox: str, token: str, said: Sequence[Any], first: datetime | None) -> Delivery:
    found = _damaged(mailbox, token, said, first, "")
    return structs.replace(found, unreadable=CORRUPT, corrupt=True)


def _damaged(
    mailbox: str, token: str, said: Sequence[Any], first: datetime | None, why: str
) -> Delivery:
    (seq,), (stored,), states, stories = said
    usual = Delivery(
        message=Message(id=f"unreadable-{seq.decode()}", body=stored, sent_at=first or EPOCH),
        mailbox=mailbox,
        first_received_at=first,
        receipt=(seq, token),
    )
    found = _delivery(usual, states[0] if states else b"", next(iter(stories), None))
    return structs.replace(found, unreadable=f"what is stored cannot be read: {why}")


def _delivery(usual: Delivery, state: bytes, story: bytes | None) -> Delivery:
    if not state:
        return usual
    _, _, attempts, spared, flags, first_at, _, expires_at = state.split(b" ")
    message = usual.message
    if expires_at != _NONE and message.expires_at is None:
        message = structs.replace(message, expires_at=when(expires_at))
    return Delivery(
        message=message,
        mailbox=usual.mailbox,
        attempt=int(attempts),
        spared=int(spared),
        suspect=int(flags) % 2 == 1,
        first_received_at=None if first_at == _NONE else when(first_at),
        history="" if story is None else story.decode(),
        receipt=usual.receipt,
    )
