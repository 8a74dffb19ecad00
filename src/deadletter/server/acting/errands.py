"""Errands: work of one server that goes on in the background, one of each kind at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from msgspec import structs

from deadletter.core.errors import BackendError, Conflict, DeadLetterError
from deadletter.office.upkeep import Run, RunState
from deadletter.ports import Clock

R = TypeVar("R", bound=Run)

log = logging.getLogger("deadletter.server")
_AWAY: Final = "the store is unavailable: try again soon"
_UNEXPECTED: Final = "unexpected error: see the log of the server"


class Errand(Generic[R]):
    """
    One kind of work in the background, and the state of its last run.

    It goes on when the browser that started it is closed, and ends with the server.
    """

    def __init__(self, name: str, idle: R, clock: Clock) -> None:
        self.name = name
        self._run = idle
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def run(self) -> R:
        """Return the state of the run in progress, or of the last one."""
        return self._run

    def start(self, fresh: R, work: Callable[["Errand[R]"], Awaitable[dict[str, Any]]]) -> R:
        """
        Start a run; raises Conflict while another one is in progress.

        `work` calls `note` for its progress, and returns the fields of its result.
        """
        if self._task is not None and not self._task.done():
            raise Conflict(f"{self.name} is already in progress: wait until it has ended")
        self._run = structs.replace(
            fresh, state=RunState.RUNNING, started_at=self._clock.now(), ended_at=None
        )
        self._task = asyncio.get_running_loop().create_task(self._work(work))
        return self._run

    def note(self, **progress: Any) -> None:
        """Change fields of the run in progress."""
        self._run = structs.replace(self._run, **progress)

    async def ended(self) -> R:
        """Wait until the run in progress has ended, and return it."""
        if self._task is not None:
            await asyncio.wait({self._task})
        return self._run

    async def close(self) -> None:
        """Cancel the run in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _work(self, work: Callable[["Errand[R]"], Awaitable[dict[str, Any]]]) -> None:
        try:
            result = await work(self)
        except asyncio.CancelledError:
            self._end(RunState.FAILED, problem="the server was stopped")
            raise
        except BackendError as error:  # its text can contain addresses
            log.warning("%s: %s", self.name, error)
            self._end(RunState.FAILED, problem=_AWAY)
        except DeadLetterError as error:
            self._end(RunState.FAILED, problem=str(error))
        except Exception:
            log.exception("%s failed", self.name)
            self._end(RunState.FAILED, problem=_UNEXPECTED)
        else:
            self._end(RunState.DONE, **result)

    def _end(self, state: RunState, **fields: Any) -> None:
        self.note(state=state, ended_at=self._clock.now(), step="", **fields)
