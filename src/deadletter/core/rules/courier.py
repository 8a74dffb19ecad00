"""
Courier events: by error code and name first, then by what the text says.

What fits nothing is unknown, and so retried.
"""

from typing import Final

from ..classify import Rule
from ..failure import Trouble

COURIER: Final = (
    Rule(
        id="courier-network",
        trouble=Trouble.TRANSIENT,
        error_codes=frozenset({"ECONNREFUSED", "ETIMEDOUT"}),
    ),
    Rule(
        id="courier-timeout",
        trouble=Trouble.TRANSIENT,
        code="TIMEOUT",
        name_parts=("Timeout",),
    ),
    Rule(
        id="courier-timeout-code",
        trouble=Trouble.TRANSIENT,
        error_codes=frozenset({"TIMEOUT", "DOWNSTREAM_TIMEOUT"}),
    ),
    Rule(
        id="courier-payload-code",
        trouble=Trouble.PERMANENT,
        error_codes=frozenset({"INVALID_PAYLOAD", "INVALID_SIGNATURE"}),
    ),
    Rule(
        id="courier-validation",
        trouble=Trouble.PERMANENT,
        code="VALIDATION",
        name_parts=("Validation",),
    ),
    Rule(
        id="courier-malformed",
        trouble=Trouble.PERMANENT,
        code="MALFORMED",
        name_parts=("Malformed",),
    ),
    Rule(
        id="courier-says-validation",
        trouble=Trouble.PERMANENT,
        code="VALIDATION",
        texts=("validation",),
    ),
    Rule(
        id="courier-says-malformed",
        trouble=Trouble.PERMANENT,
        code="MALFORMED",
        texts=("malformed",),
    ),
    Rule(
        id="courier-says-invalid",
        trouble=Trouble.PERMANENT,
        code="INVALID_PAYLOAD",
        texts=("invalid",),
    ),
)
