"""Where frameworks on Redis put their dead, one file each; none knows another."""

from collections.abc import Mapping
from typing import Final

from .bullmq import BullMQ
from .celery import Celery
from .dramatiq import Dramatiq
from .rq import RQ
from .shelf import Probe, Shelf

SHELVES: Final[Mapping[str, Shelf]] = {
    "celery": Celery(),
    "dramatiq": Dramatiq(),
    "rq": RQ(),
    "bullmq": BullMQ(),
}
"""By the kind of place: `rq:default` is the queue `default` of RQ."""


__all__ = ["SHELVES", "BullMQ", "Celery", "Probe", "Shelf"]
