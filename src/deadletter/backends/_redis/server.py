"""What a server says about itself, as far as it lets us ask."""

from typing import Any

from msgspec import Struct
from redis.exceptions import ResponseError

from deadletter.core.errors import ConfigError
from deadletter.ports.features import Durability


class Server(Struct, frozen=True):
    """What we go by."""

    durability: Durability
    in_cluster: bool


async def look_at(client: Any, where: str) -> Server:
    """Ask a server; refuse one that throws messages away when its memory is full."""
    said = await client.info()
    policy = str(said.get("maxmemory_policy", "noeviction"))
    if said.get("maxmemory") and policy.startswith("allkeys"):
        raise ConfigError(
            f"{where} would delete messages when its memory is full: it has"
            f" maxmemory-policy {policy}; set it to noeviction"
        )
    return Server(await _durability(client, said), said.get("cluster_enabled") == 1)


async def _durability(client: Any, said: dict[str, Any]) -> Durability:
    """What it means that the server has answered."""
    if not said.get("aof_enabled"):
        return Durability.NONE
    try:
        settings = await client.config_get("appendfsync")
    except ResponseError:  # managed servers keep it to themselves: say what is sure
        return Durability.KILL_SAFE
    if settings.get("appendfsync") == "always":
        return Durability.POWER_SAFE
    return Durability.KILL_SAFE
