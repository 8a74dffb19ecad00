"""Letters on a shelf that get another message."""

from msgspec import structs

from deadletter.core.editing import check_revision, edited
from deadletter.core.ids import body_digest
from deadletter.core.message import Message

from .letters_shelf import OnShelf


def edit(kept: OnShelf, message: Message, revision: int) -> str:
    """Put another message into a letter; what the audit says of it."""
    check_revision(kept.head, revision)
    head, detail = edited(kept.head, kept.letter.message, message)
    kept.known = structs.replace(
        kept.known, head=head, edited=body_digest(message.body)
    )
    kept.letter = structs.replace(
        kept.letter, message=message, original=kept.letter.as_it_died
    )
    return detail


def is_damaged(kept: OnShelf) -> bool:
    """Whether its body, or the one that died, is not the one that was kept."""
    letter, known = kept.letter, kept.known
    return (
        body_digest(letter.message.body) != known.current
        or body_digest(letter.as_it_died.body) != known.digest
    )
