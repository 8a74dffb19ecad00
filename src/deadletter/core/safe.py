"""
Text of others, made harmless for a terminal.

Messages, errors and notes may hold anything: sequences that move the cursor,
write to the clipboard, or turn the reading direction so that a line says
something else than it shows. What is shown here is what is there.
"""

import re
from typing import Final

# C0 and C1 controls; soft hyphen; direction marks, embeddings and isolates; line
# and paragraph separators; other invisible format characters; lone surrogates;
# tag characters.
_HARMFUL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_HARMFUL_IN_LINES: Final = re.compile(
    _HARMFUL.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f")
)


def clean(text: str) -> str:
    """The text on one line, with everything a terminal would act on spelled out."""
    return _HARMFUL.sub(_spelled, text)


def clean_lines(text: str) -> str:
    """The same, but newlines stay, and tabs become spaces."""
    return _HARMFUL_IN_LINES.sub(_spelled, text.replace("\t", "    "))


def clean_json(text: str) -> str:
    """A JSON document that means the same and is harmless to look at."""
    return _HARMFUL_IN_LINES.sub(lambda found: _units(found[0]), text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    short = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}.get(code)
    if short is not None:
        return short
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _units(character: str) -> str:
    raw = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2))
