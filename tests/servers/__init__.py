"""Real servers for tests, one module each."""

from .common import Missing, NotOurs, Server
from .consul import Consul
from .kafka import Kafka
from .mongodb import MongoDB
from .nats import Nats
from .openid import OpenId
from .postgresql import PostgreSQL
from .rabbitmq import RabbitMQ
from .redis import Redis
from .sqs import Sqs

KINDS: tuple[type[Server], ...] = (
    *(PostgreSQL, Redis, Nats, MongoDB, Sqs, RabbitMQ, Kafka, Consul),
    OpenId,
)

__all__ = [
    "KINDS",
    "Consul",
    "Kafka",
    "Missing",
    "MongoDB",
    "Nats",
    "NotOurs",
    "OpenId",
    "PostgreSQL",
    "RabbitMQ",
    "Redis",
    "Server",
    "Sqs",
]
