"""Rendering of frames as PNG pictures, without any library."""

import struct
import zlib
from typing import Final

from .frame import Frame

STEPS: Final = 60  # iterations after which a point counts as inside the set
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


class TooLarge(Exception):
    """The picture is too large for this machine; another one may render it."""


def render(frame: Frame, *, pixels: int) -> bytes:
    """Return the picture; raises TooLarge if it has more than `pixels` pixels."""
    if frame.width * frame.height > pixels:
        raise TooLarge(f"{frame.width} x {frame.height} is more than {pixels:,} pixels")
    return _png(frame, [_row(frame, y) for y in range(frame.height)])


def _row(frame: Frame, y: int) -> bytes:
    scale = 3.0 / frame.zoom / frame.width
    imaginary = frame.imaginary + (y - frame.height / 2) * scale
    start = frame.real - frame.width / 2 * scale
    return bytes(_shade(complex(start + x * scale, imaginary)) for x in range(frame.width))


def _shade(point: complex) -> int:
    z = 0j
    for step in range(STEPS):
        if abs(z) > 2.0:
            return 255 * step // STEPS
        z = z * z + point
    return 0


def _png(frame: Frame, rows: list[bytes]) -> bytes:
    head = struct.pack(">IIBBBBB", frame.width, frame.height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    return _SIGNATURE + _part(b"IHDR", head) + _part(b"IDAT", body) + _part(b"IEND")


def _part(kind: bytes, data: bytes = b"") -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
