"""A shop on pika: what fails, its consumer rejects, and RabbitMQ puts it aside."""

from decimal import Decimal
from typing import Any

import pika
import till

HEADERS = {"cents": 2**40, "paid": Decimal("12.34"), "bytes": b"\xff\x00"}
HOME = f"pika.{till.KIND}"
kind = {"x-queue-type": till.KIND}
aside = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{HOME}.dead"}


def channel() -> Any:
    opened = pika.BlockingConnection(pika.URLParameters(till.URL)).channel()
    opened.confirm_delivery()
    opened.queue_declare(f"{HOME}.dead", durable=True, arguments=kind)
    opened.queue_declare(HOME, durable=True, arguments={**kind, **aside})
    return opened


def take(opened: Any, method: Any, properties: Any, body: bytes) -> None:
    try:
        is_whole = HEADERS.items() <= properties.headers.items()
        till.charge(body.decode() if is_whole else "changed")
    except ValueError:
        opened.basic_nack(method.delivery_tag, requeue=False)
    else:
        opened.basic_ack(method.delivery_tag)


def send(order: str) -> None:
    properties = pika.BasicProperties(delivery_mode=2, headers=HEADERS)
    channel().basic_publish("", HOME, order.encode(), properties)


if __name__ == "__main__":
    consumer = channel()
    consumer.basic_qos(prefetch_count=1)
    consumer.basic_consume(HOME, take)
    consumer.start_consuming()
