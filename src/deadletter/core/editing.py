"""The rules for editing a letter's message, which all stores follow."""

from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from .errors import ConfigError, Conflict, NotFound
from .letter import OPEN, By, LetterHead
from .message import Headers, Message, checked

EDITABLE: Final = ("body", "headers", "content_type", "key")
"""The fields of a message that may be edited; the others identify the message."""


class Changes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a message; fields that are not given stay as they are."""

    body: bytes | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET
    content_type: str | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET

    def made_to(self, message: Message) -> Message:
        """The message with these changes made to it; new texts are checked."""
        given = {name: value for name in EDITABLE if (value := getattr(self, name)) is not UNSET}
        blank = Message(id="", body=b"", sent_at=message.sent_at)
        checked(replace(blank, **given))
        return replace(message, **given)


class Edit(Struct, frozen=True):
    """Another message for a letter, by somebody who has seen it at a revision."""

    id: str
    message: Message
    revision: int
    by: By


def check_revision(head: LetterHead, revision: int) -> None:
    """Refuse to edit a letter that is not open, or not as its editor has seen it."""
    if head.state not in OPEN:
        raise Conflict(
            f"letter {head.id} is {head.state}: only open letters can be edited; reopen it first"
        )
    if head.revision != revision:
        raise Conflict(
            f"letter {head.id} is at revision {head.revision}, not {revision}: it has"
            " changed meanwhile; look again"
        )


def is_edit(before: Message, after: Message) -> bool:
    """Return whether two messages differ only where a message may be edited."""
    return replace(before, **{name: getattr(after, name) for name in EDITABLE}) == after


def edited(head: LetterHead, before: Message, after: Message) -> tuple[LetterHead, str]:
    """
    The head of a letter whose message becomes another, and what the audit says.

    The audit says what was changed, and nothing of the contents.
    """
    changed = [name for name in EDITABLE if getattr(before, name) != getattr(after, name)]
    if not is_edit(before, after):
        raise ConfigError(
            "only the body, headers, content type and key of a letter's message can be"
            " edited: leave the rest as it is"
        )
    if not changed:
        raise ConfigError("the message is as it was: there is nothing to edit")
    size = len(after.body)
    new = replace(head, key=after.key, size=size, revision=head.revision + 1)
    told = [name.replace("_", " ") for name in changed]
    if "body" in changed:
        told[0] += f" ({len(before.body)} to {size} bytes)"
    return new, ", ".join(told)


def no_letter(id: str) -> NotFound:
    """Return what is raised when there is no letter to edit."""
    return NotFound(f"there is no letter {id[:40]}")
