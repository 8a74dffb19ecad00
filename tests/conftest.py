"""Options of the whole suite."""

import signal
import threading

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["servers.fixtures"]

# Machines are busy at times, and a slow example is not a wrong one.
settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# For `make check`: fewer examples of each property. `make test` takes them all.
settings.register_profile("quick", settings.get_profile("steady"), max_examples=20)
settings.load_profile("steady")


def pytest_configure() -> None:
    """
    Heed interrupts, even where whoever runs the tests has them ignored.

    Processes that tests start inherit what is ignored: in a background job of a
    shell no interrupt would reach them.
    """
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if is_ignored and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="the long form of the fault tests"
    )
