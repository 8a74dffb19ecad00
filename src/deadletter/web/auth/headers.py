"""What every response says to browsers: trust nothing, keep nothing."""

from typing import Final

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
    b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    b" sandbox"
)
_ALWAYS: Final = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_POLICY: Final = POLICY.encode()
_KEPT: Final = b"cache-control"
_NEVER: Final = b"no-store"
OF_ANSWERS: Final = {**_ALWAYS, _POLICY: _DATA, _KEPT: _NEVER}
"""The headers of an answer that says nothing else, such as the HTTP server's own."""


async def security_headers(message: Message, _: Scope) -> None:
    """
    For the app's `before_send`: there even errors without a route come by.

    Only a response that names how long it may be kept is kept anywhere.
    """
    if message["type"] != "http.response.start":
        return
    given = [(name.lower(), value) for name, value in message.get("headers", ())]
    named = dict(given)
    ours = dict(_ALWAYS)
    if _POLICY not in named:
        ours[_POLICY] = _DATA
    if b"max-age" not in named.get(_KEPT, b""):
        ours[_KEPT] = _NEVER
    theirs = [one for one in given if one[0] not in ours]
    message["headers"] = [*theirs, *ours.items()]
