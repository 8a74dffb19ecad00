"""
HTTP statuses.

Transient is what may be another answer to the same request later. So are 409 and
412 (somebody else was quicker; a handler that looks again may pass), 421, 423
and 425. 404 and 410 are permanent: the thing is not there, and a dead letter is
a better place to wait for it than a busy loop. Of the server's own errors only
those are permanent that say "I cannot do this at all". Below 400 nothing is said.
"""

from typing import Final

from ..classify import Rule
from ..failure import Trouble

HTTP: Final = (
    Rule(
        id="http-try-later",
        trouble=Trouble.TRANSIENT,
        statuses=frozenset({408, 409, 412, 421, 423, 425, 429, 499}),
    ),
    Rule(
        id="http-refused",
        trouble=Trouble.PERMANENT,
        statuses=range(400, 500),
    ),
    Rule(
        id="http-cannot",
        trouble=Trouble.PERMANENT,
        statuses=frozenset({501, 505, 506, 508, 510, 511}),
    ),
    Rule(
        id="http-server-trouble",
        trouble=Trouble.TRANSIENT,
        statuses=range(500, 600),
    ),
)
