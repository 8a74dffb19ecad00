"""Links to what a text names: letters, groups, replays and mailboxes."""

import re
from typing import Final

from .pages import path_to

_LETTER: Final = re.compile(r"[a-z2-7]{24}")
_GROUP: Final = re.compile(r"\d{1,2}-[0-9a-f]{8,64}(?:-[0-9a-f]+)?")
_REPLAY: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_OF_MAILBOXES: Final = frozenset({"create", "update", "delete", "release"})


def target_path(action: str, target: str) -> str:
    """Return the page of the target of an audit entry; nothing if it has none."""
    if _LETTER.fullmatch(target):
        return path_to("letters", target)
    if _GROUP.fullmatch(target):
        return path_to("groups", target)
    if _REPLAY.fullmatch(target):
        return path_to("replays", target)
    return path_to("queues", target) if action in _OF_MAILBOXES and target else ""


def short_name(target: str) -> str:
    """Return the name of a letter, group or replay as lists show it."""
    if _LETTER.fullmatch(target):
        return target[:10]
    if _GROUP.fullmatch(target):
        return target[:10]
    return target[:8] if _REPLAY.fullmatch(target) else target
