"""A typed client of the server, for programs and for `dlq --server`."""

from deadletter.core.errors import ConfigError

try:
    from deadletter.queue_server.client import Lease, LeasedItem, QueueClient

    from .client import Client
except ModuleNotFoundError as error:
    if error.name != "httpx":
        raise
    raise ConfigError("the client needs httpx: pip install 'deadletter[client]'") from error

__all__ = ["Client", "Lease", "LeasedItem", "QueueClient"]
