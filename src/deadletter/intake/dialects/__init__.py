"""
What dead places of others say: a small reader per dialect, and the table of them.

    letter_of(found, …)       the letter of whatever was found
    DIALECTS                  who is asked, in this order
"""

from deadletter.core.origin import (
    LINEAGE,
    NOBODY,
    PACKED,
    Found,
    Origin,
    Told,
    Trusted,
    fenced,
    is_lineage_believed,
    lineage_headers,
    lineage_of,
    origin_of,
    packed_lineage,
    unmarked,
)

from .reading import DIALECTS, MALFORMED, has_unsigned, letter_of

__all__ = [
    "DIALECTS",
    "LINEAGE",
    "MALFORMED",
    "NOBODY",
    "PACKED",
    "Found",
    "Origin",
    "Told",
    "Trusted",
    "fenced",
    "has_unsigned",
    "is_lineage_believed",
    "letter_of",
    "lineage_headers",
    "lineage_of",
    "origin_of",
    "packed_lineage",
    "unmarked",
]
