"""Letters of an archive: what makes one impossible, and what of one is kept."""

import re
from typing import Final

from msgspec import structs

from deadletter.core.editing import is_edit
from deadletter.core.ids import body_digest, letter_id
from deadletter.core.letter import DeadLetter, LetterHead, State

_LONGEST_TEXT: Final = 64 * 1024
_LONGEST_NAME: Final = 1024  # of what databases have in an index as a whole
_MOST_ATTEMPTS: Final = 1_000
_LARGEST_NUMBER: Final = 1_000_000_000
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def problem_with(letter: DeadLetter) -> str | None:
    """
    Return why a letter is refused; None if it is not.

    Types were checked before. A letter's id must follow from where its message came
    from. Ids and keys of messages may be of any length, as they may when sent.
    """
    if len(letter.story()) > _MOST_ATTEMPTS:
        return f"it tells of more than {_MOST_ATTEMPTS:,} attempts"
    return _problem(letter.head) or _problem_within(letter)


def imported(letter: DeadLetter) -> DeadLetter:
    """Return the letter as it is kept here."""
    head = letter.head
    # Nobody here is replaying it, and its size and revision are ours to say.
    state = State.PENDING if head.state is State.REPLAYING else head.state
    message, original = letter.message, letter.original
    return structs.replace(
        letter,
        head=structs.replace(head, state=state, size=len(message.body), revision=0),
        message=structs.replace(message, lineage=None),
        original=original and structs.replace(original, lineage=None),
    )


def _problem(head: LetterHead) -> str | None:
    names = (head.source, head.partition, head.fingerprint)
    if any(len(name) > _LONGEST_NAME for name in names):
        return f"a name in it is longer than {_LONGEST_NAME:,} characters"
    if not head.source or _CONTROL.search(head.source):
        return "the name of its mailbox is empty or has control characters"
    texts = (
        *(head.error_text, head.reason_text, head.error_type),
        *(head.consumer, head.version, head.code),
    )
    if any(len(text) > _LONGEST_TEXT for text in texts):
        return f"a text in it is longer than {_LONGEST_TEXT:,} characters"
    numbers = (head.attempts, head.replays)
    if not all(0 <= number <= _LARGEST_NUMBER for number in numbers):
        return "its attempts or replays are not a count"
    return None


def _problem_within(letter: DeadLetter) -> str | None:
    head, message = letter.head, letter.message
    times = (head.first_failed_at, head.dead_at, message.sent_at)
    more = (message.expires_at, letter.first_received_at)
    if any(time is not None and time.tzinfo is None for time in (*times, *more)):
        return "a time in it has no time zone"
    if message.id != head.message_id:
        return "it holds another message than its head says"
    if not is_edit(letter.as_it_died, message):
        return "it was edited where no message can be edited"
    if head.id != _rightful_id(letter):
        return "its id does not belong to its message"
    return None


def _rightful_id(letter: DeadLetter) -> str:
    head = letter.head
    twist = body_digest(letter.as_it_died.body) if head.conflict else b""
    return letter_id(head.source, head.partition, head.message_id, twist)
