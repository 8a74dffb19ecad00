"""
Mailboxes on Kafka: a topic each, worked by a consumer group.

    kafka://host:9092,other:9092/?group=shop
    kafka://user:password@host:9093/?security.protocol=SASL_SSL

    group=deadletter          the consumer group; {mailbox} in it stands for the mailbox
    prefix=                   of every topic's name
    retry={topic}.retry       where records wait for another try
    partitions= replication=  of the topics we make
    create=true               topics that are missing
    ordering=none             or key: records of one key one at a time
    dialect=none              or spring: kafka_dlt-* headers on dead letters
    prefetch=1000             records in hand per partition

It keeps no letters and no ledger: pair it with an office.
"""

from deadletter.kit import client_library
from deadletter.ports.engine import Engine
from deadletter.ports.features import Clock, Dice


async def open_engine(url: str, *, clock: Clock, dice: Dice) -> Engine:
    """Open the engine of a URL, once a broker has answered."""
    with client_library("kafka", "kafka", "confluent_kafka"):
        from .engine import connect  # noqa: PLC0415 -- needs the client, an extra
    return await connect(url, clock=clock)
