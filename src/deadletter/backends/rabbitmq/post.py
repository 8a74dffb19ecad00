"""
Messages on their way into queues, at once or after a while.

A message that goes back takes its story along, which AMQP cannot write into one
that is there: so a copy is sent, with the same id, and when the broker has it the
original is acked. If we die between the two, it is delivered twice.
"""

from collections.abc import Sequence
from datetime import datetime
from math import ceil

from msgspec import Struct, structs

from deadletter.core.message import Message
from deadletter.ports.signing import Seal

from . import delays
from .link import Link, Mail, Nowhere, in_our_words
from .packing import Story, packed
from .places import Places


class Letter(Struct, frozen=True, kw_only=True):
    """Something to send."""

    message: Message
    to: str  # a queue
    story: Story
    delay: float = 0.0  # seconds
    crc: int | None = None  # of what does not match it, and must not seem to


class Post:
    """Sends, through delay queues where something has to wait."""

    def __init__(self, link: Link, places: Places, seal: Seal) -> None:
        self._link = link
        self._places = places
        self._seal = seal

    async def send(self, letters: Sequence[Letter], now: datetime) -> None:
        """Returns when the broker has them all, durably."""
        with in_our_words():
            mail = [
                await self._later(letter, now)
                if letter.delay > 0
                else self._now(letter, letter.story)
                for letter in letters
            ]
        try:
            await self._link.publish(mail)
        except Nowhere as nowhere:
            self._places.forget(*nowhere.queues)
            raise

    async def _later(self, letter: Letter, now: datetime) -> Mail:
        message, story = letter.message, letter.story
        delay = letter.delay
        if message.expires_at is not None:
            # Whoever works the mailbox must see it to bury it, and in time.
            delay = min(delay, max(0.0, (message.expires_at - now).total_seconds()))
        wait = ceil(delay * 1000)
        if not wait:
            return self._now(letter, story)
        left = max(0, wait - delays.LONGEST)
        story = structs.replace(story, copied=True, left=left * 1000)
        wait -= left
        place = await self._places.delay(letter.to, delays.bucket(wait))
        keys, crc = self._seal.keys, letter.crc
        properties = packed(message, story, to=letter.to, keys=keys, wait=wait, crc=crc)
        return place, properties, message.body

    def _now(self, letter: Letter, story: Story) -> Mail:
        message, keys = letter.message, self._seal.keys
        properties = packed(message, story, to=letter.to, keys=keys, crc=letter.crc)
        return letter.to, properties, message.body
