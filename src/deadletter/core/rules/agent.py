"""
Agents and model providers, by the name of the error.

The ambiguous ones are unknown: a provider's error may be either, a body that
does not deserialise may wait for the newer version, a resource for its deploy.
"""

from typing import Final

from ..classify import Rule
from ..failure import Trouble

AGENT: Final = (
    Rule(
        id="agent-retriable",
        trouble=Trouble.TRANSIENT,
        names=(
            "MailboxConnectionError",
            "RateLimitError",
            "TimeoutError",
            "VisibilityExpansionRequired",
        ),
    ),
    Rule(
        id="agent-not-retriable",
        trouble=Trouble.PERMANENT,
        names=(
            "ValidationError",
            "ContentPolicyViolation",
            "AuthenticationError",
            "QuotaExceededError",
        ),
    ),
    Rule(
        id="agent-ambiguous",
        trouble=Trouble.UNKNOWN,
        names=("ProviderError", "SerializationError", "ResourceNotFoundError"),
    ),
)
