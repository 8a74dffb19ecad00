"""Letters on a shelf that get another message."""

from msgspec import structs

from deadletter.core.editing import check_revision, edited
from deadletter.core.ids import body_digest
from deadletter.core.message import Message
from deadletter.core.packing import pack_rest
from deadletter.core.seals import EDITED, Sealing

from .letters_shelf import OnShelf


def edit(kept: OnShelf, message: Message, revision: int, sealing: Sealing) -> str:
    """Put another message into a letter; what the audit says of it."""
    check_revision(kept.head, revision)
    head, detail = edited(kept.head, kept.letter.message, message)
    kept.known = structs.replace(
        kept.known, head=head, edited=body_digest(message.body)
    )
    if kept.letter.original is None:
        kept.original_seal = kept.seal
    kept.letter = structs.replace(
        kept.letter, message=message, original=kept.letter.as_it_died
    )
    rest = pack_rest(kept.letter)
    kept.seal = sealing.message(head, kept.known.current, rest, EDITED)
    return detail
