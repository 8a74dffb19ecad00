"""dlq work --reload: watch the code of an App, and replace its workers when it changes."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from deadletter.core.errors import ConfigError
from deadletter.runtime.supervisor import RELOAD

_NO_CACHE: Final = "PYTHONDONTWRITEBYTECODE"
MISSING: Final = "--reload needs watchfiles: pip install 'deadletter[reload]'"


def code_of(name: str) -> Path:
    """
    Return the directory with the code of an App: its package, or that of its module.

    Nothing is imported. Raises ConfigError if there is no such module.
    """
    top = name.partition(":")[0].partition(".")[0]
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = find_spec(top) if top else None
    if found is None:
        raise ConfigError(
            f"there is no module {top!r} in this directory: name the module and the App in it,"
            " such as shop:app"
        )
    if found.submodule_search_locations:
        return Path(next(iter(found.submodule_search_locations)))
    if found.origin is None or not found.has_location:
        raise ConfigError(f"{top!r} is built into Python: name the module of your App")
    return Path(found.origin).parent


@contextmanager
def watching(directory: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Ask this process to `RELOAD` whenever a .py file in a directory changes."""
    try:
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        raise ConfigError(MISSING) from error
    stop = threading.Event()

    def look() -> None:
        for changes in watch(
            directory, watch_filter=PythonFilter(), stop_event=stop, raise_interrupt=False
        ):
            files = sorted({os.path.relpath(file, directory) for _, file in changes})
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            tell(f"{files[0]}{more} changed: the worker starts again")
            os.kill(os.getpid(), RELOAD)

    thread = threading.Thread(target=look, name="dlq-reload", daemon=True)
    thread.start()
    before = os.environ.get(_NO_CACHE)
    os.environ[_NO_CACHE] = "1"  # Python takes a file of the same second and size for unchanged
    try:
        yield
    finally:
        if before is None:
            del os.environ[_NO_CACHE]
        stop.set()
        thread.join(5.0)
