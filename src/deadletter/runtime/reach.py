"""Not giving up on what must not be given up, and saying so while it lasts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from deadletter.core.backoff import Exponential
from deadletter.core.errors import BackendError
from deadletter.core.events import BackInReach, Observer, OutOfReach
from deadletter.ports import Clock, Dice

T = TypeVar("T")

PATIENCE: Final = Exponential(0.1, factor=2.0, cap=5.0, jitter=0.5)


class Reach:
    """
    Whether the broker, office and ledger can be reached.

    While one of them cannot, `down` says which, and workers stop fetching.
    """

    def __init__(
        self,
        mailbox: str,
        *,
        clock: Clock,
        dice: Dice,
        observe: Observer,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.down: dict[str, str] = {}
        self._mailbox = mailbox
        self._clock = clock
        self._dice = dice
        self._observe = observe
        self._beat = beat  # waiting is a sign of life

    async def patiently(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """
        Call until it works.

        Only a backend's own errors are waited out; ours are not.
        """
        tries = 0
        since = self._clock.monotonic()
        try:
            while True:
                try:
                    result = await call()
                    break
                except BackendError as error:
                    tries += 1
                    self._beat()
                    self.down[what] = str(error)
                    self._observe(
                        OutOfReach(
                            mailbox=self._mailbox,
                            what=what,
                            text=str(error),
                            tries=tries,
                        )
                    )
                    await asyncio.sleep(PATIENCE.delay(tries, self._dice.draw()))
        finally:
            # However it ended: nobody is left to find out when it is back.
            if tries:
                self.down.pop(what, None)
        if tries:
            seconds = self._clock.monotonic() - since
            self._observe(
                BackInReach(mailbox=self._mailbox, what=what, seconds=seconds)
            )
        return result
