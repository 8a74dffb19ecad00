"""
How long a queue remembers where its items came from.

A move to a dead queue may be repeated by whoever did not hear that it was done, also
when the dead item has been consumed since. So its source is remembered as long as the
item is there, and for a while after it was first missed; then nobody asks any more.
"""

from typing import Final

REMEMBERED: Final = 7 * 86_400.0  # seconds between two looks at whether it is there


def is_forgotten(*, is_there: bool, was_missed: bool) -> bool:
    """Whether a look is the second in a row that finds an item gone."""
    return was_missed and not is_there
