"""Frames of films, and their form as items of the queue."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from deadletter import Malformed
from deadletter.queue_server.model import NewItem

Size = Annotated[int, Meta(ge=1, le=100_000)]


class Frame(Struct, frozen=True, forbid_unknown_fields=True):
    """One view of the Mandelbrot set, as it is requested."""

    film: Annotated[str, Meta(pattern="^[a-z0-9-]{1,40}$")]  # part of a file's name
    number: Annotated[int, Meta(ge=0)]
    width: Size
    height: Size
    real: float = -0.7436
    imaginary: float = 0.1318
    zoom: Annotated[float, Meta(gt=0)] = 1.0

    @property
    def name(self) -> str:
        """Return the name of the frame and of its file."""
        return f"{self.film}-{self.number:03}"


def frames_of_film(name: str, frames: int, width: int, height: int) -> list[Frame]:
    """Return the frames of a film that zooms in, a little with every frame."""
    return [Frame(name, number, width, height, zoom=1.2**number) for number in range(frames)]


def encode_frame(frame: Frame) -> NewItem:
    """Return the item of a frame; its reference is the name of the frame."""
    return NewItem(msgspec.json.encode(frame), reference=frame.name, encoding="json", kind="frame")


def decode_frame(payload: bytes) -> Frame:
    """Return the frame of a payload; raises Malformed if it can never be rendered."""
    try:
        return msgspec.json.decode(payload, type=Frame)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from error
