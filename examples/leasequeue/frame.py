"""One frame of a film: what is asked for, as it travels through the queue."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from deadletter import Malformed
from deadletter.queue_server.model import NewItem

Size = Annotated[int, Meta(ge=1, le=100_000)]


class Frame(Struct, frozen=True, forbid_unknown_fields=True):
    """A look at the Mandelbrot set, a little closer with every frame."""

    film: Annotated[str, Meta(pattern="^[a-z0-9-]{1,40}$")]  # part of a file's name
    number: Annotated[int, Meta(ge=0)]
    width: Size
    height: Size
    real: float = -0.7436
    imaginary: float = 0.1318
    zoom: Annotated[float, Meta(gt=0)] = 1.0

    @property
    def name(self) -> str:
        """What it is called, by people and in the folder."""
        return f"{self.film}-{self.number:03}"


def film(name: str, frames: int, width: int, height: int) -> list[Frame]:
    """All frames of a film that flies in."""
    return [Frame(name, number, width, height, zoom=1.2**number) for number in range(frames)]


def item_of(frame: Frame) -> NewItem:
    """A frame as an item; people know it by its reference."""
    return NewItem(msgspec.json.encode(frame), reference=frame.name, encoding="json", kind="frame")


def frame_of(payload: bytes) -> Frame:
    """A frame as it was asked for; Malformed if nobody could ever render it."""
    try:
        return msgspec.json.decode(payload, type=Frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error
