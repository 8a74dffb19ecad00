"""Consul; beside it stands the Go module that it is built from."""

from .agent import Consul

__all__ = ["Consul"]
