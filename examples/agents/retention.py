"""Letting go of dead letters when their time is over."""

from datetime import timedelta
from typing import Any

from deadletter import PROFILES, State
from deadletter.core.letter import By
from deadletter.office.retention import Retention

from .letters import DeadLetter
from .mailbox import PostMailbox
from .post import Post
from .sifting import sift

FINISHED = (State.CLOSED, State.REPLAYED, State.DISCARDED)
BY = By("agents.retention", "its time is over")


def tidy(*dead_letters: PostMailbox[Any, None]) -> int:
    """
    Throw away what lies in these longer than their `default_ttl`; how many.

    The office keeps what nobody has dealt with, however old it is.
    """
    return sum(_tidied(box) for box in dead_letters)


def tidy_office(post: Post) -> int:
    """Delete what is finished and older than the profile keeps it; how many."""
    kept_for = timedelta(seconds=PROFILES["mailbox"].retention.dead or 0)

    async def deleting() -> int:
        store = await post.letters()
        keep = dict.fromkeys(FINISHED, kept_for)
        return (await Retention(store, post.clock, keep=keep).run(BY)).letters

    return post.call(deleting())


def _tidied(box: PostMailbox[Any, None]) -> int:
    def is_over(letter: DeadLetter[Any]) -> bool:
        age = (box.post.clock.now() - letter.dead_lettered_at).total_seconds()
        return 0 < box.default_ttl < age

    return sift(box, is_over)
