"""
Names of people and programs, as the audit shows them.

One who reads the audit must be able to tell who did something. So no name may look
like another one, or like what the office itself acts under.
"""

import unicodedata
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 200  # characters
RESERVED: Final = frozenset(
    {
        *("anonymous", "console", "deadletter", "dlq", "intake", "local", "nobody"),
        *("office", "replay", "retention", "server", "sweep", "system", "unknown"),
        "worker",
    }
)
"""What the office acts under, or could be taken for it."""

# Letters of other scripts that look like Latin ones, and digits that do.
_ALIKE: Final = str.maketrans(
    "аеорсухіјѕԁһԛԝьӏвкмнтгпαβεικνορτυχω01|",  # noqa: RUF001
    "aeopcyxijsdhqwblbkmhtrnabeiknoptuxwoll",
)
_TOGETHER: Final = (  # scripts that people do write in one word
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
)


def name_problem(name: str) -> str | None:
    """Why this cannot be the name of anybody; or None."""
    if not name.strip() or len(name) > LONGEST or not name.isprintable():
        return f"a name is 1 to {LONGEST} printable characters"
    if name != " ".join(name.split()):
        return "a name neither begins nor ends with a space, nor has two in a row"
    if name != unicodedata.normalize("NFKC", name):
        plain = unicodedata.normalize("NFKC", name)
        return f"{name!a} looks like {plain!a} and is another name: use the latter"
    scripts = frozenset(_scripts(name))
    if len(scripts) > 1 and not any(scripts <= some for some in _TOGETHER):
        told = " and ".join(sorted(one.capitalize() for one in scripts))
        return f"{name!a} mixes letters of {told}, which look alike: use those of one"
    if is_reserved(name):
        return (
            f"{name!a} is, or looks like, a name that the office acts under: choose"
            " another one"
        )
    return None


def is_reserved(name: str) -> bool:
    """Whether the office itself acts under this name, or one that looks like it."""
    first = skeleton(name).partition("/")[0]
    return first in _RESERVED or first.startswith("dlq ")


def skeleton(name: str) -> str:
    """What two names have in common that people could mistake for each other."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_ALIKE)
    apart = unicodedata.normalize("NFD", folded)
    return "".join(one for one in apart if not unicodedata.combining(one))


def _scripts(name: str) -> Iterator[str]:
    for letter in name:
        if letter.isalpha():
            yield unicodedata.name(letter, "UNKNOWN").partition(" ")[0]


_RESERVED: Final = frozenset(map(skeleton, RESERVED))
