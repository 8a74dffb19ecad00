"""
What dead places of others say: a small reader per dialect, and the table of them.

    letter_of(found, now)     the letter of whatever was found
    DIALECTS                  who is asked, in this order
"""

from .found import Found, Told
from .origin import Origin, lineage_headers, origin_of, unmarked
from .reading import DIALECTS, MALFORMED, letter_of

__all__ = [
    "DIALECTS",
    "MALFORMED",
    "Found",
    "Origin",
    "Told",
    "letter_of",
    "lineage_headers",
    "origin_of",
    "unmarked",
]
