"""Frameworks on Redis: where each keeps its failed jobs, and how they are queued again."""

from collections.abc import Mapping
from typing import Final

from .bullmq import BullMQ
from .celery import Celery
from .dramatiq import Dramatiq
from .framework import Framework, Probe
from .rq import RQ

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "celery": Celery(),
    "dramatiq": Dramatiq(),
    "rq": RQ(),
    "bullmq": BullMQ(),
}
"""By the kind in the name of a place: `rq:default` is the queue `default` of RQ."""


__all__ = ["FRAMEWORKS", "BullMQ", "Celery", "Framework", "Probe"]
