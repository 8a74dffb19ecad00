"""A shop on RQ whose worker has another class."""

import os
from typing import Any

import dying
import till
from redis import Redis
from rq import Queue, Retry

from deadletter.integrations.rq import DeadLetterWorker

dying.arm()


class ShopWorker(DeadLetterWorker):
    def __init__(self, *args: Any, **more: Any) -> None:
        timeout = float(os.environ.get("TIMEOUT", "10"))
        super().__init__(*args, office=os.environ["OFFICE"], office_timeout=timeout, **more)


def charge(order: str, token: str = "") -> None:
    till.charge(order)


def die(order: str) -> None:
    if (till.HERE / "broken").exists():
        os.kill(os.getpid(), 9)
    till.charge(order)


def send(order: str, job: Any = "charge", retries: int = 0, **more: Any) -> None:
    again = Retry(max=retries) if retries else None
    queue = Queue("shop", connection=Redis.from_url(till.URL))
    queue.enqueue(
        f"filing_rq.{job}", args=(order,), kwargs=more, job_id=f"job-{order}", retry=again
    )
