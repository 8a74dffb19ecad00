"""The way into a test of an App, with or without awaiting."""

from types import TracebackType

from deadletter.core.events import Observer
from deadletter.handler_registry import HandlerRegistry
from deadletter.home import Home

from .app_test import AppTest
from .sync_test import SyncAppTest


class Testing:
    """What `App.testing` returns: enter it with `async with`, or with `with`."""

    __test__ = False  # pytest: the name begins with Test

    def __init__(
        self, app: HandlerRegistry, home: Home, observe: Observer, *, seed: int, brake: bool
    ) -> None:
        self._home = home
        self._test = AppTest(app, home, observe, seed=seed, brake=brake)
        self._sync: SyncAppTest | None = None

    async def __aenter__(self) -> AppTest:
        return await self._test.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._test.__aexit__(kind, error, trace)

    def __enter__(self) -> SyncAppTest:
        self._sync = SyncAppTest(self._test, self._home)
        return self._sync.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sync is not None:
            self._sync.__exit__(kind, error, trace)
