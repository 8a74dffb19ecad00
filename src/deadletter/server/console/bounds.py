"""
Bounds on texts of messages, by the bytes that they take on a page.

A page stays small whatever is in a letter. Characters do not bound it: a quote takes five bytes
of HTML, and a direction mark is spelled out.
"""

from markupsafe import escape

from deadletter.core.text import clean


def weight(text: str) -> int:
    """Return the bytes that a text takes on a page."""
    return len(escape(clean(text)).encode())


def shortened(text: str, most: int) -> str:
    """Return a text on one line, or the beginning of it that takes at most `most` bytes."""
    shown = text[:most]
    while weight(shown) > most:
        shown = shown[: len(shown) * 3 // 4]
    return shown if len(shown) == len(text) else f"{shown}…"
