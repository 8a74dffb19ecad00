"""What every response says to browsers: trust nothing, keep nothing."""

from typing import Final

from litestar.datastructures import MutableScopeHeaders
from litestar.types import Message, Scope

POLICY: Final = "content-security-policy"
PAGES: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The policy that pages of ours ask for: what is ours runs, and nothing else."""

# Bodies of messages are among the rest: whatever they are, nothing in them runs.
_DATA: Final = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " sandbox"
)
_ALWAYS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


async def security_headers(message: Message, _: Scope) -> None:
    """
    For the app's `before_send`: there even errors without a route come by.

    Only a response that names how long it may be kept is kept anywhere.
    """
    if message["type"] != "http.response.start":
        return
    headers = MutableScopeHeaders.from_message(message)
    for name, value in _ALWAYS.items():
        headers[name] = value
    headers.setdefault(POLICY, _DATA)
    if "max-age" not in headers.get("cache-control", ""):
        headers["cache-control"] = "no-store"
