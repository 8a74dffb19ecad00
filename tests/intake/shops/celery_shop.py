"""A shop on Celery: what fails, its worker rejects, and RabbitMQ puts it aside."""

import till
from celery import Celery
from kombu import Queue

app = Celery("shop", broker=till.URL)
aside = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shop.dead"}
app.conf.update(
    task_queues=[Queue("shop", queue_arguments=aside)],
    task_default_queue="shop",
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    worker_enable_remote_control=False,
)


@app.task(name="shop.charge")
def charge(order: str) -> None:
    till.charge(order)


def send(order: str) -> None:
    with app.connection() as connection:
        Queue("shop.dead")(connection).declare()
    charge.delay(order)
