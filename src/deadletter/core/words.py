"""Looking for many words at once."""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

_Tree: TypeAlias = dict[str, "_Tree"]

_DEEP: Final = 16  # letters of a word that are looked at


def hint_of(words: Iterable[str]) -> re.Pattern[str]:
    """
    A pattern that is found in every text that holds one of the words.

    It goes over the text once, in half the time that asking for one word after
    another takes. Of long words it knows only the beginning.
    """
    tree: _Tree = {}
    for word in words:
        branch = tree
        for letter in word[:_DEEP]:
            branch = branch.setdefault(letter, {})
        branch[""] = {}
    return re.compile(_told(tree) if tree else r"(?!)")


def _told(tree: _Tree) -> str:
    if "" in tree:  # a word ends here: longer ones need not be looked for
        return ""
    branches = [re.escape(letter) + _told(rest) for letter, rest in tree.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
