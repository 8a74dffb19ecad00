"""A shop on Celery: what fails, its worker rejects, and RabbitMQ puts it aside."""

import till
from celery import Celery
from kombu import Queue

HOME = f"celery.{till.KIND}"
kind = {"x-queue-type": till.KIND}
aside = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{HOME}.dead"}
app = Celery("shop", broker=till.URL)
app.conf.update(
    task_queues=[Queue(HOME, queue_arguments={**kind, **aside})],
    task_default_queue=HOME,
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="shop.charge")
def charge(order: str) -> None:
    till.charge(order)


def send(order: str) -> None:
    with app.connection() as connection:
        Queue(f"{HOME}.dead", queue_arguments=kind)(connection).declare()
    charge.delay(order)
