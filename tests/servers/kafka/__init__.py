"""Kafka; beside it stands what Maven is asked for."""

from .broker import Kafka

__all__ = ["Kafka"]
