"""Run coroutines that never wait, without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """
    Run a coroutine to its end at once and return its result.

    Transactions are written as coroutines over the operations of a store. Where these
    operations are plain calls, as on the writer thread of SQLite, nothing ever waits.
    Raises RuntimeError if the coroutine waits for something after all.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waited: only operations that never wait may run here")
