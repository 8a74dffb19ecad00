"""Options of the whole suite."""

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="the long form of the fault tests"
    )
