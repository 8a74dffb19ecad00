"""Real servers for tests, one module each."""

from .common import Missing, NotOurs, Server
from .kafka import Kafka
from .mongodb import MongoDB
from .nats import Nats
from .postgresql import PostgreSQL
from .rabbitmq import RabbitMQ
from .redis import Redis
from .sqs import Sqs

KINDS: tuple[type[Server], ...] = (PostgreSQL, Redis, Nats, MongoDB, Sqs, RabbitMQ, Kafka)

__all__ = [
    "KINDS",
    "Kafka",
    "Missing",
    "MongoDB",
    "Nats",
    "NotOurs",
    "PostgreSQL",
    "RabbitMQ",
    "Redis",
    "Server",
    "Sqs",
]
