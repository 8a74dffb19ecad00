"""
What tells one problem from another: letters of one cause share a fingerprint.

It is made of the mailbox, the type of the error, its trouble and code, the top
application frame with a hash of its line, and the text without what varies from message
to message (`core.normaliser`). The version in front lets groups survive a change of any
of that: letters of an older version get their fingerprint anew when they are kept, and
the chore `regroup` does the same for those in the office.
"""

import re
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from .failure import Failure, Trouble
from .letter import DeadLetter, LetterHead
from .normaliser import normalise

VERSION: Final = "2"
OWN: Final = "own"
"""In place of a version: the application named this cause itself."""

SPLIT: Final = "split"
"""In place of a version: people split this group off another one."""

OLD: Final = ("1-",)
"""How fingerprints of older versions begin."""

_OLD: Final = re.compile(r"1-[0-9a-f]{16}")


def fingerprint(source: str, failure: Failure) -> str:
    """The fingerprint of a failure at a mailbox, version first."""
    if failure.cause:
        return own_fingerprint(source, failure.cause)
    return fingerprint_of(
        source,
        failure.error_type,
        failure.frame,
        failure.text,
        trouble=failure.trouble,
        code=failure.code,
    )


def fingerprint_of(
    source: str,
    error_type: str,
    frame: str,
    text: str,
    *,
    trouble: Trouble = Trouble.UNKNOWN,
    code: str = "",
) -> str:
    """The same, of what a letter remembers of its failure."""
    normalised = normalise(text, error_type)
    return _named(VERSION, (source, error_type, trouble, code, frame, normalised))


def own_fingerprint(source: str, cause: str) -> str:
    """The fingerprint of a cause that the application named itself."""
    return _named(OWN, (source, cause))


def split_name(group: str, query: str) -> str:
    """The name of a group that people split off another one by a search."""
    return _named(SPLIT, (group, query))


def of_head(head: LetterHead, frame: str) -> str:
    """The fingerprint of a letter, by its head and the frame it failed in."""
    return fingerprint_of(
        head.source,
        head.error_type,
        frame,
        head.error_text,
        trouble=head.trouble,
        code=head.code,
    )


def is_old(name: str) -> bool:
    """Whether a fingerprint is of an older version; other names are left alone."""
    return name.startswith(OLD) and _OLD.fullmatch(name) is not None


def current(letter: DeadLetter) -> DeadLetter:
    """The letter with a fingerprint of this version, if its own is of an older one."""
    if not is_old(letter.head.fingerprint):
        return letter
    name = of_head(letter.head, letter.frame)
    return replace(letter, head=replace(letter.head, fingerprint=name))


def _named(version: str, parts: tuple[str, ...]) -> str:
    # Lengths in front keep two parts from passing for two others.
    told = "".join([f"{len(part)}:{part}" for part in parts])
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8)
    return f"{version}-{digest.hexdigest()}"
