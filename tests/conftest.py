"""Options of the whole suite."""

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from deadletter.stores.sqlite import opening

pytest_plugins = ["servers.fixtures", "report_commit"]
_LONGEST = 600.0  # seconds of one test, on a busy machine

# Machines are busy at times, and a slow example is not a wrong one.
settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# For `make test`: fewer examples of each property. `make coverage` takes them all.
settings.register_profile("quick", settings.get_profile("steady"), max_examples=20)
settings.load_profile("steady")


def pytest_configure() -> None:
    """
    Heed interrupts, and keep compiled modules, whatever the shell says.

    Processes that tests start inherit what is ignored: in a background job of a
    shell no interrupt would reach them.
    """
    # Thousands of processes are started, and none should compile everything anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test that hangs, with where it does: others must go on."""
    if item.config.getoption("--long"):
        return (yield)
    faulthandler.dump_traceback_later(_LONGEST, exit=True, file=sys.__stderr__)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long form of the fault tests")


@pytest.fixture(scope="session", autouse=True)
def new_databases_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copy a migrated file instead of migrating each new one: thousands are made."""
    template = tmp_path_factory.mktemp("template") / "empty.db"
    made = opening.prepare(template, "full")
    made.file.release()
    content, make = template.read_bytes(), opening._make

    def copied(path: Path) -> bool:
        is_old = opening.known()[-1][0] != made.schema  # a test of migrations
        if is_old or path.exists() or not path.parent.is_dir():
            return make(path)
        opening._check_log(path)
        copy = path.with_name(f"{uuid4()}.copy")
        copy.touch(0o600)
        copy.write_bytes(content)
        try:
            os.link(copy, path)  # whole, or not at all: others may be making it, too
        except FileExistsError:
            return False
        finally:
            copy.unlink()
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_make", copied)
        yield
