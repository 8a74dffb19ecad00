"""
What tells one problem from another: letters of one cause share a fingerprint.

It is made of the mailbox, the type of the error, its text without what varies
from message to message, and the top application frame. The version in front lets
groups survive a change of what "without what varies" means.
"""

import re
from hashlib import blake2b
from typing import Final

from .failure import Failure

VERSION: Final = "1"

_READ: Final = 400  # characters of a text that are looked at
_KEPT: Final = 200  # ...and of what they become: longer ids must not cut deeper

# Repeats are bounded or possessive, and start only where a word starts: linear.
_VARIES: Final = re.compile(r"[0-9\"'`@/\\-]")
_QUOTED: Final = re.compile(
    r"""(?<!\w)(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|`[^`\n]{0,300}`)(?!\w)"""
)
_URL: Final = re.compile(r"(?<![\w+.-])[A-Za-z][\w+.-]{1,15}+://[^\s\"'<>()]{1,300}+")
_EMAIL: Final = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}+(?:\.[\w-]{1,63}+)+"
)
_PATH: Final = re.compile(r"(?<![\w.<])(?:[A-Za-z]:)?(?:[\\/][\w.@+~-]{1,100}+){2,}+")
_UUID: Final = re.compile(
    r"(?i)(?<![0-9a-f])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-f])"
)
_WITH_DIGITS: Final = re.compile(r"(?<!\w)[^\W\d]*+\d\w*+(?:[:.,]++\w++)*+")
_IPV6: Final = re.compile(r"(?i)[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}")
# Not a word with a number behind it (bed12345), nor a number with a unit (4096b).
_HEX: Final = re.compile(r"(?i)0x\w++|(?!(?:[a-f]++\d++|\d++[a-f])$)[0-9a-f]{8,}+")
_NUMBER: Final = re.compile(r"\d++(?:[.,]\d++)*+")


def fingerprint(source: str, failure: Failure) -> str:
    """The fingerprint of a failure at a mailbox, version first."""
    return fingerprint_of(source, failure.error_type, failure.frame, failure.text)


def fingerprint_of(source: str, error_type: str, frame: str, text: str) -> str:
    """The same, of what a letter remembers of its failure."""
    parts = (source, error_type, frame, normalise(text))
    # Lengths in front keep two parts from passing for two others.
    told = "".join([f"{len(part)}:{part}" for part in parts])
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{VERSION}-{digest.hexdigest()}"


def normalise(text: str) -> str:
    """A text without what varies: quotes, URLs, addresses, paths, ids, numbers."""
    text = text[:_READ]
    if _VARIES.search(text):
        if '"' in text or "'" in text or "`" in text:
            text = _QUOTED.sub("<text>", text)
        if "://" in text:
            text = _URL.sub("<url>", text)
        if "@" in text:
            text = _EMAIL.sub("<email>", text)
        if "/" in text or "\\" in text:
            text = _PATH.sub("<path>", text)
        if text.count("-") >= 4:
            text = _UUID.sub("<id>", text)
        text = _WITH_DIGITS.sub(_without_digits, text)
    return " ".join(text.split())[:_KEPT]


def _without_digits(match: re.Match[str]) -> str:
    word = match[0]
    if word.isdigit():
        return "<n>"
    if word.count(":") > 1 and _IPV6.fullmatch(word):
        return "<ip>"
    if _HEX.fullmatch(word):
        return "<id>"
    bare, numbers = _NUMBER.subn("<n>", word)
    # Letters and digits in turns are an id: a hash, a short random name.
    return "<id>" if numbers > 2 and word.replace("_", "").isalnum() else bare
