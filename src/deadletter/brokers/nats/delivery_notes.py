"""
Notes on messages that were delivered more than once.

The server counts deliveries and nothing else, and messages in a stream never change. So
the outcome of each delivery is stored beside it, under the number of the message, before
the delivery is released. A delivery without a note was lost with its worker. A message
that succeeds at once, as most do, never has a note.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import BackendError
from deadletter.ports.broker import Released

from .connection import Link, Sending
from .streams import MailboxNames

_encode: Final = msgspec.msgpack.Encoder().encode


class Note(Struct, frozen=True, kw_only=True):
    """Outcomes of the deliveries of one message, up to `seen`."""

    id: str  # of the message: a stream that is created again counts from 1
    seen: int = 0  # deliveries that are accounted for
    unrun: int = 0  # of these: reached no handler
    spared: int = 0  # of these: not charged
    suspect: bool = False
    alone: int = 0  # the delivery that runs alone, without outcome yet
    first_at: datetime | None = None
    history: str = ""
    place: int = 0  # sequence number of the note; 0: not stored

    def until(self, count: int) -> "Note":
        """
        Return the note when a message is delivered for the count-th time.

        Deliveries without an outcome were lost. Lost among others, another message may be
        the cause: not charged. Lost alone, the delivery is charged.
        """
        before = max(count - 1, self.seen)  # a server may forget its last counts
        lost = before - self.seen
        guilty = self.seen < self.alone <= before
        return structs.replace(
            self,
            seen=before,
            spared=self.spared + lost - guilty,
            suspect=self.suspect or lost > 0,
            alone=0,
        )

    @property
    def attempts(self) -> int:
        """Number of deliveries that were attempts."""
        return self.seen - self.unrun

    def unseen(self) -> "Note":
        """Add a delivery that reached no handler."""
        return structs.replace(self, seen=self.seen + 1, unrun=self.unrun + 1)

    def taken_alone(self) -> "Note":
        """Note that a delivery runs alone."""
        return structs.replace(self, alone=self.seen + 1)

    def released(self, how: Released) -> "Note":
        """Add a released delivery."""
        # Its handler ran and its worker survived: the message is proven. A message
        # that did not run (uncharged, without a story) is not.
        unrun = not how.charged and how.history is None
        return structs.replace(
            self,
            seen=self.seen + 1,
            spared=self.spared + (not how.charged),
            suspect=self.suspect and unrun,
            history=self.history if how.history is None else how.history,
        )


_read: Final = msgspec.msgpack.Decoder(Note).decode


class Notes:
    """Notes on the messages of one mailbox."""

    def __init__(self, link: Link, book: str, place: MailboxNames) -> None:
        self._link = link
        self._book = book
        self._place = place

    async def read(self, wanted: Sequence[tuple[int, str]]) -> list[Note]:
        """Read the notes on messages, given by number and id."""
        if not wanted:
            return []
        subjects = [f"{self._place.notes}.{seq}" for seq, _ in wanted]
        notes = []
        latest = await self._link.latest(self._book, subjects)
        for (_, id_), found in zip(wanted, latest, strict=True):
            note = Note(id=id_)
            if found is not None:
                place, content = found
                with self._link.reading():
                    written = _read(content)
                if written.id == id_:
                    note = structs.replace(written, place=place)
            notes.append(note)
        return notes

    async def write(self, notes: Sequence[tuple[int, Note]]) -> list[Note]:
        """Store notes by message number; return them with their sequence numbers."""
        answers = await self._link.ask_all(
            [Sending(f"{self._place.notes}.{seq}", _encode(note)) for seq, note in notes]
        )
        with self._link.reading():
            return [
                structs.replace(note, place=int(answer["seq"]))
                for (_, note), answer in zip(notes, answers, strict=True)
            ]

    async def drop(self, notes: Iterable[Note]) -> None:
        """Delete notes; one that stays does no harm."""
        subject = f"$JS.API.STREAM.MSG.DELETE.{self._book}"
        sendings = [
            Sending(subject, b'{"seq":%d,"no_erase":true}' % note.place)
            for note in notes
            if note.place
        ]
        with suppress(BackendError):
            await self._link.requests(sendings)
