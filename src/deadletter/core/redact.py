"""
What must not be shown or stored in clear.

Error texts and stacks are redacted when they are captured; bodies and headers
are kept as they are (P8) and masked when shown. Patterns are ours, linear in
the text, and run over bounded text only.
"""

import re
from typing import Final

MASK: Final = "[redacted]"

_SECRET_NAMES: Final = (
    r"password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|authorization|credentials?|session[_-]?id|cookie"
)
# name = value, name: value, "name": "value"; the value ends at a delimiter.
_ASSIGNED: Final = re.compile(
    rf"""(?i)\b([\w-]{{0,40}}(?:{_SECRET_NAMES}))(["']?\s{{0,3}}[=:]\s{{0,3}}["']?)"""
    r"""((?:bearer|basic|digest)\s{1,3})?[^\s"',;&)}\]]{1,4000}"""
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s{1,3}[A-Za-z0-9._~+/=-]{8,4000}")
_URL_PASSWORD: Final = re.compile(r"(?<=://)([^\s:/@]{0,200}):([^\s/@]{1,400})@")
_JWT: Final = re.compile(r"\beyJ[\w-]{5,2000}\.[\w-]{5,4000}\.[\w-]{0,2000}")
_CARD: Final = re.compile(r"\b(?:\d[ -]?){12,18}\d\b")
_AWS_KEY: Final = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")

_SECRET_NAME: Final = re.compile(rf"(?i)(?:{_SECRET_NAMES})")
# One cheap look decides whether the careful ones are needed at all.
_WORTH_A_LOOK: Final = re.compile(
    rf"(?i)(?:{_SECRET_NAMES}|bearer|basic\s|://|eyJ|AKIA|ASIA|\d[\d -]{{11}})"
)


def redact(text: str) -> str:
    """The text with what looks like a secret replaced by a mask."""
    if not _WORTH_A_LOOK.search(text):
        return text
    text = _ASSIGNED.sub(rf"\1\2{MASK}", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _URL_PASSWORD.sub(rf"\1:{MASK}@", text)
    text = _JWT.sub(MASK, text)
    text = _AWS_KEY.sub(MASK, text)
    return _CARD.sub(_mask_card, text)


def is_secret_name(name: str) -> bool:
    """Whether a header or field of this name should be masked when shown."""
    return _SECRET_NAME.search(name) is not None


def _mask_card(match: re.Match[str]) -> str:
    digits = [int(c) for c in match[0] if c.isdigit()]
    odd, even = digits[-1::-2], digits[-2::-2]
    total = sum(odd) + sum(sum(divmod(2 * d, 10)) for d in even)
    return MASK if total % 10 == 0 else match[0]
