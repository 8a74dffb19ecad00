"""Numbers for Prometheus on a health port, where its client is installed."""

from importlib.util import find_spec
from typing import Final

from deadletter.core.errors import NotFound
from deadletter.core.events import Observer
from deadletter.observe.fan import fan_out
from deadletter.runtime.health import Exposition

MISSING: Final = "/metrics needs prometheus-client: pip install 'deadletter[metrics]'"


def can_count() -> bool:
    """Whether there is anything to count with."""
    return find_spec("prometheus_client") is not None


def metered(observe: Observer) -> tuple[Observer, Exposition]:
    """An observer that counts as well, and how to read what it counted."""
    if not can_count():
        return observe, _nothing
    from deadletter.observe.exposition import Counted  # noqa: PLC0415 -- an extra

    counted = Counted()
    return fan_out(counted.observe, observe), counted.text


async def _nothing() -> bytes:
    raise NotFound(MISSING)
