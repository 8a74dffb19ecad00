"""
What our streams, consumers and subjects are called.

A mailbox may have any printable name, a stream may not: whatever could be a
wildcard, a separator or a path is written as =XX. No two mailboxes share a name.
"""

import re
from hashlib import sha256
from typing import Final

from msgspec import Struct

from deadletter.core.errors import ConfigError

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_ODD_IN_SUBJECT: Final = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST: Final = 180  # with all that is put around it still a file name
DURABLE: Final = "deadletter"


class Place(Struct, frozen=True):
    """Where one mailbox lives."""

    subject: str
    stream: str
    durable: str
    notes: str  # subjects of what is noted about its messages begin with this
    own: bool  # the stream is ours: made and deleted with the mailbox


class Names(Struct, frozen=True):
    """All names behind one prefix."""

    prefix: str
    stream: str | None = None  # an existing one, whose subjects the mailboxes are
    consumer: str | None = None

    @property
    def book(self) -> str:
        """The stream where we keep what a message cannot carry."""
        return f"{self.prefix}-book"

    @property
    def registry(self) -> str:
        """The subject where the list of mailboxes is kept."""
        return f"{self.book}.mailboxes"

    @property
    def advisories(self) -> str:
        """The stream that catches what the server says of exhausted messages."""
        return f"{self.prefix}-advisories"

    def place(self, mailbox: str) -> Place:
        """Where a mailbox lives."""
        plain = _short(_ODD.sub(_hex, mailbox))
        notes = f"{self.book}.of.{plain}"
        if self.stream is None:
            subject = f"{self.prefix}.{_subject(mailbox)}"
            return Place(subject, f"{self.prefix}-{plain}", DURABLE, notes, own=True)
        if _subject(mailbox) != mailbox:
            raise ConfigError(
                f"the mailbox {mailbox!a} is to be a subject of the stream"
                f" {self.stream}: use letters, digits, -, _ and single dots"
            )
        durable = self.consumer or f"{self.prefix}-{plain}"
        return Place(mailbox, self.stream, durable, notes, own=False)


def _subject(mailbox: str) -> str:
    empty = mailbox.startswith(".") or mailbox.endswith(".") or ".." in mailbox
    return _short((_ODD if empty else _ODD_IN_SUBJECT).sub(_hex, mailbox))


def _hex(odd: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in odd[0].encode("utf-8", "surrogatepass"))


def _short(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"{name[:100].rstrip('.')}=={sha256(name.encode()).hexdigest()[:40]}"
