"""All mailboxes on a server: their options, their counts, what was lost in them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from msgspec import structs

from deadletter.core.errors import NotFound
from deadletter.core.message import Delivery
from deadletter.core.topology import check_creation, check_deletion, check_name, check_update
from deadletter.ports.broker import QueueInfo, QueueOptions, Swept
from deadletter.ports.features import Features

from .mailbox import SLICE, MailboxClient
from .registry import Listed, MailboxRegistry
from .script_runner import ScriptRunner, tokens
from .scripts import EPOCH, seconds, when

B = TypeVar("B", bound=MailboxClient)


class Mailboxes(ABC, Generic[B]):
    """All mailboxes with one prefix; engines provide the access to one of them."""

    def __init__(
        self,
        runner: ScriptRunner,
        new_client: Callable[[str], B],
        register: MailboxRegistry,
        features: Features,
    ) -> None:
        self.features = features
        self._runner = runner
        self._new_client = new_client
        self._register = register
        self._tokens = tokens()
        self._clients: dict[str, B] = {}

    @abstractmethod
    def info(self, options: QueueOptions, said: Sequence[Any]) -> QueueInfo:
        """Return the counts of a mailbox, from the answer of the script."""

    async def create(self, options: QueueOptions) -> None:
        """Create a mailbox; raise Conflict if it exists with other options."""
        self._mailbox(options.name)  # raises if the name is invalid

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
        """Delete a mailbox; return how many messages were deleted with it."""

        def change(existing: Listed) -> Listed:
            if name not in existing:
                raise NotFound(f"there is no queue {name!a}")
            users = check_deletion(name, existing, force=force)
            return {name: existing[name]} | {
                user: structs.replace(existing[user], dead_queue=None) for user in users
            }

        return await self._register.leave(name, change)

    async def queues(self) -> Sequence[QueueInfo]:
        """Return all mailboxes, sorted by name."""
        listed = await self._register.read()
        found = []
        for name, options in sorted(listed.items()):
            client = self._mailbox(name)
            found.append(self.info(options, await client.ask(client.verbs.count)))
        return found

    async def time(self) -> datetime:
        """Return the time on the server."""
        seconds_, micros_ = await self._runner.command("TIME")
        return EPOCH + timedelta(seconds=int(seconds_), microseconds=int(micros_))

    async def conflict(self, mailbox: str, *, attempts: int) -> str | None:
        """Return None: mailboxes on Redis have no limits of their own."""
        return None

    async def sweep(self, *, limit: int = 100, lease: float = 60.0) -> Swept:
        """Release deliveries of lost workers; claim what has expired or is out of attempts."""
        listed = await self._register.read()
        dead_queues = {options.dead_queue for options in listed.values()}
        lost, suspects, by = 0, set(), seconds(lease)
        misdated, ahead, at = 0, 0.0, None
        doomed: list[Delivery] = []
        for name, options in listed.items():
            room = min(limit - len(doomed), SLICE)
            # A dead queue's messages neither expire nor run out of attempts.
            mortal = int(name not in dead_queues and room > 0)
            # A token per mailbox: message numbers are unique only within one.
            client, token = self._mailbox(name), next(self._tokens)
            said = await client.ask(
                client.verbs.sweep, token, by, room, options.max_attempts, mortal
            )
            count, waiting, shortened, lead, now, *found = said
            lost, misdated = lost + count, misdated + shortened
            ahead, at = max(ahead, float(lead) / 1_000_000), when(now)
            if waiting:
                suspects.add(name)
            if found:
                doomed += client.deliveries(token, found, first=None)
        return Swept(
            lost, frozenset(suspects), tuple(doomed), misdated=misdated, ahead=ahead, at=at
        )

    def _mailbox(self, name: str) -> B:
        if name not in self._clients:
            check_name(name)
            self._clients[name] = self._new_client(name)
        return self._clients[name]
