"""
Readers of dead-letter dialects: a small reader per dialect, and their table.

    letter_of(found, …)       the letter of a found message
    DIALECTS                  the readers, in the order they are tried
"""

from deadletter.core.origin import (
    LINEAGE,
    NOBODY,
    PACKED,
    DeathReport,
    Found,
    Origin,
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
    "DeathReport",
    "Found",
    "Origin",
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
