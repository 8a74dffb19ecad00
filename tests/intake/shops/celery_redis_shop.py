"""A shop on Celery and Redis: what fails for good, it sends to the queue `dead`."""

from typing import Any

import till
from celery import Celery, Task

app = Celery("shop", broker=till.URL, backend=till.URL)
app.conf.update(
    task_default_queue="shop",
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


class Buried(Task):
    """A task whose last failure puts it aside, under the id and headers it has."""

    def on_failure(self, exc: Exception, task_id: str, args: Any, kwargs: Any, einfo: Any) -> None:
        self.signature_from_request(args=args, kwargs=kwargs, queue="dead").apply_async()


@app.task(
    name="shop.charge",
    base=Buried,
    autoretry_for=(ValueError,),
    retry_backoff=False,
    default_retry_delay=0,
    max_retries=1,
)
def charge(order: str) -> None:
    till.charge(order)


def send(order: str) -> None:
    charge.delay(order)
