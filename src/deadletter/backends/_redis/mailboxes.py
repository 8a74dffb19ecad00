"""All mailboxes on a server: their options, their counts, what was lost in them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from msgspec import structs

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import (
    check_creation,
    check_deletion,
    check_name,
    check_update,
)
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features

from .box import Box
from .lanes import tokens
from .link import Link
from .register import Listed, Register
from .source import SLICE
from .times import EPOCH, seconds, when

B = TypeVar("B", bound=Box)


class Mailboxes(ABC, Generic[B]):
    """The server's mailboxes, behind one prefix; engines say what one of them is."""

    def __init__(
        self,
        link: Link,
        boxes: Callable[[str], B],
        register: Register,
        features: Features,
    ) -> None:
        self.features = features
        self._link = link
        self._new_box = boxes
        self._register = register
        self._tokens = tokens()
        self._boxes: dict[str, B] = {}

    @abstractmethod
    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """What is in a mailbox, as the script that counts said it."""

    async def create(self, options: QueueOptions) -> None:
        """Make a mailbox. The same again is fine; with other options a Conflict."""
        self._box(options.name)  # refuses what cannot be the name of one

        def change(existing: Listed) -> Listed:
            check_creation(options, existing)
            return {options.name: options}

        await self._register.change(change)

    async def update(self, options: QueueOptions) -> None:
        """Change a mailbox's options."""

        def change(existing: Listed) -> Listed:
            check_update(options, existing)
            return {options.name: options}

        await self._register.change(change)

    async def delete(self, name: str, *, force: bool = False) -> int:
        """Delete a mailbox and say how many messages went with it."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            return {name: existing[name]} | {
                user: structs.replace(existing[user], dead_queue=None) for user in users
            }

        return await self._register.leave(name, change)

    async def queues(self) -> Sequence[QueueInfo]:
        """All mailboxes, by name."""
        listed = await self._register.read()
        found = []
        for name, options in sorted(listed.items()):
            box = self._box(name)
            found.append(self.info(options, await box.ask(box.verbs.count)))
        return found

    async def time(self) -> datetime:
        """Return the time on the server."""
        seconds_, micros_ = await self._link.command("TIME")
        return EPOCH + timedelta(seconds=int(seconds_), microseconds=int(micros_))

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """None: mailboxes here have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Take back what lost workers held, and claim what is past saving."""
        listed = await self._register.read()
        dead_queues = {options.dead_queue for options in listed.values()}
        lost, suspects, by = 0, set(), seconds(lease)
        misdated, ahead, at = 0, 0.0, None
        doomed: list[Delivery] = []
        for name, options in listed.items():
            room = min(limit - len(doomed), SLICE)
            # A dead queue's messages neither expire nor run out of attempts.
            mortal = int(name not in dead_queues and room > 0)
            # One for each: numbers are a mailbox's own, so others have the same.
            box, token = self._box(name), next(self._tokens)
            said = await box.ask(
                box.verbs.sweep, token, by, room, options.max_attempts, mortal
            )
            count, waiting, shortened, lead, now, *found = said
            lost, misdated = lost + count, misdated + shortened
            ahead, at = max(ahead, float(lead) / 1_000_000), when(now)
            if waiting:
                suspects.add(name)
            if found:
                doomed += box.deliveries(token, found, first=None)
        return Swept(
            lost,
            frozenset(suspects),
            tuple(doomed),
            misdated=misdated,
            ahead=ahead,
            at=at,
        )

    def _box(self, name: str) -> B:
        if name not in self._boxes:
            check_name(name)
            self._boxes[name] = self._new_box(name)
        return self._boxes[name]
