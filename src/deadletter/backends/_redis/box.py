"""What source and sink of one mailbox share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from msgspec import Struct

from deadletter.core.message import Delivery

from .lanes import Lanes
from .link import Argument, Link
from .register import Register
from .scripts import Script, Verbs
from .settling import Settling


class Bell(Struct, frozen=True):
    """Where somebody waits until there may be something for him."""

    key: str
    waits: str = "BLPOP"
    rings: tuple[Argument, ...] = ("RPUSH", "1")  # the command, what follows its key
    name: str = ""  # that connections have whose owner waits here


class Box(ABC):
    """One mailbox; every engine says how its deliveries are read."""

    verbs: ClassVar[Verbs]
    keys_to_send: ClassVar[int | None] = None  # the first ones; all unless told

    def __init__(
        self,
        link: Link,
        register: Register,
        name: str,
        *,
        keys: Sequence[str],
        bells: tuple[Bell, Bell],
        settling: Settling | None = None,
    ) -> None:
        self.name = name
        self.link = link
        self.keys = keys
        self.lanes = Lanes()
        self._register = register
        self._bells = bells  # the usual one, and that of suspects
        self.settling = settling or Settling(self.ask, self.verbs.settle)

    async def ask(self, script: Script, *args: Argument) -> Any:
        """Run a script on this mailbox, once."""
        return await self.link.timed(script, self.keys, *args)

    async def make(self) -> None:
        """Have it take messages; it was not there, or was deleted meanwhile."""
        await self._register.join(self.name)

    @abstractmethod
    def deliveries(
        self, token: str, said: Sequence[Any], *, first: datetime | None
    ) -> list[Delivery]:
        """What a claim got, as the server said it."""

    async def waited(self, within: float, *, alone: bool) -> None:
        """Until the bell rings, or so many seconds are over."""
        bell = self._bells[alone]
        await self.link.blocked(bell.waits, bell.key, within, bell.name)

    def pass_on(self, *, alone: bool) -> None:
        """Ring for somebody else what may have rung for us."""
        bell = self._bells[alone]
        command, *rest = bell.rings
        self.link.start(self.link.command(command, bell.key, *rest))
