"""Kafka, in two forms: the real broker, and librdkafka's mock cluster."""

from .broker import Kafka
from .mock import KafkaMock

__all__ = ["Kafka", "KafkaMock"]
