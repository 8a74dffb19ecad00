"""
What dead places of others say: a small reader per dialect, and the table of them.

    letter_of(found, …)       the letter of whatever was found
    DIALECTS                  who is asked, in this order
"""

from .claims import NOBODY, Trusted
from .found import Found, Told
from .origin import Origin, fenced, lineage_headers, origin_of, unmarked
from .reading import DIALECTS, MALFORMED, has_unsigned, letter_of

__all__ = [
    "DIALECTS",
    "MALFORMED",
    "NOBODY",
    "Found",
    "Origin",
    "Told",
    "Trusted",
    "fenced",
    "has_unsigned",
    "letter_of",
    "lineage_headers",
    "origin_of",
    "unmarked",
]
