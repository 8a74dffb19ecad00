"""Calls that block, with a deadline as a whole, on threads that nobody waits for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread


class DaemonCalls:
    """
    Makes blocking calls, one at a time, each at most `within` seconds long.

    The time limits of a library count from byte to byte: a server that sends one now
    and then holds its call without end. Then we go on, and so does the end of the
    process; the next call is refused while the last one still lasts.
    """

    def __init__(self) -> None:
        self._is_busy = False

    async def make(self, within: float, call: Callable[[], object]) -> None:
        """Make a call; raises what it raises, or TimeoutError."""
        if self._is_busy:
            raise TimeoutError("the call before has not ended yet")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            if ended.done():  # nobody waits any more
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        def run() -> None:
            error = None
            try:
                call()
            except Exception as raised:  # noqa: BLE001 -- the caller's to judge
                error = raised
            self._is_busy = False
            with suppress(RuntimeError):  # the event loop has closed
                loop.call_soon_threadsafe(end, error)

        self._is_busy = True
        Thread(target=run, name="dlq-call", daemon=True).start()
        async with asyncio.timeout(within):
            await ended
