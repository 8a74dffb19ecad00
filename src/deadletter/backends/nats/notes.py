"""
What is noted about a message that has been delivered more than once.

The server counts deliveries and nothing else, and what is in a stream never changes.
So how each delivery went is noted beside it, under the message's number, before the
delivery is given back. What is not noted was lost with its worker. A message that is
handled at once, as most are, never has a note.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct, structs

from deadletter.core.errors import BackendError
from deadletter.ports.broker import Released

from .link import Link, Sending
from .names import Place

_encode: Final = msgspec.msgpack.Encoder().encode


class Note(Struct, frozen=True, kw_only=True):
    """What became of the deliveries of one message, up to `seen`."""

    id: str  # of the message, should a stream be made anew and count from 1 again
    seen: int = 0  # deliveries that are accounted for
    unrun: int = 0  # ...of which nobody got to see so many
    spared: int = 0  # ...of which so many are not charged
    suspect: bool = False
    alone: int = 0  # the delivery that was handed out alone; no news of it yet
    first_at: datetime | None = None
    history: str = ""
    place: int = 0  # where this is written; 0 when it is not

    def until(self, count: int) -> "Note":
        """
        What is known when a message is delivered for the count-th time.

        Deliveries nobody has told of were lost. Lost in company, it may have been
        a neighbour's fault: not charged. Lost alone, it was its own.
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
        """How many deliveries were attempts."""
        return self.seen - self.unrun

    def unseen(self) -> "Note":
        """One more delivery, which nobody got to see."""
        return structs.replace(self, seen=self.seen + 1, unrun=self.unrun + 1)

    def taken_alone(self) -> "Note":
        """One more delivery has begun, alone."""
        return structs.replace(self, alone=self.seen + 1)

    def released(self, how: Released) -> "Note":
        """One more delivery, which was given back like this."""
        # Its handler has run and its worker lives: it is proven. What comes back
        # unrun, and so uncharged and without a story, is not.
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
    """The notes about one mailbox's messages."""

    def __init__(self, link: Link, book: str, place: Place) -> None:
        self._link = link
        self._book = book
        self._place = place

    async def read(self, wanted: Sequence[tuple[int, str]]) -> list[Note]:
        """What is noted about messages, given by number and id."""
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
        """Note these, each under a message's number, and say where it is written."""
        answers = await self._link.ask_all(
            [
                Sending(f"{self._place.notes}.{seq}", _encode(note))
                for seq, note in notes
            ]
        )
        with self._link.reading():
            return [
                structs.replace(note, place=int(answer["seq"]))
                for (_, note), answer in zip(notes, answers, strict=True)
            ]

    async def drop(self, notes: Iterable[Note]) -> None:
        """Forget these; what is left over by mistake does no harm."""
        subject = f"$JS.API.STREAM.MSG.DELETE.{self._book}"
        sendings = [
            Sending(subject, b'{"seq":%d,"no_erase":true}' % note.place)
            for note in notes
            if note.place
        ]
        with suppress(BackendError):
            await self._link.requests(sendings)
