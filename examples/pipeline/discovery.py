"""
Addresses of modules: from a JSON file, or from Consul.

Both are read for every call, so that a module that has moved is found.
"""

from itertools import count
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import msgspec
from msgspec import Struct

from deadletter import ConfigError

from .errors import ModuleUnavailable

TIMEOUT: Final = 3.0  # seconds for Consul to answer


class Discovery(Protocol):
    """A source of addresses."""

    async def address(self, module_id: str) -> str:
        """Return `host:port` of a module. Raises `ModuleUnavailable` if there is none."""

    async def close(self) -> None:
        """Close connections."""


def open_discovery(where: str, *, token: str = "") -> Discovery:
    """Return the addresses at a URL of Consul, or in a file."""
    if urlsplit(where).scheme in {"http", "https"}:
        return Consul(where, token=token)
    return AddressFile(Path(where))


class AddressFile:
    """A JSON file, `{"chunker": "10.0.0.7:9090"}`, that a deployment keeps up to date."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def address(self, module_id: str) -> str:
        """Return the address in the file."""
        try:
            known = _addresses.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise _lookup_failed(module_id, str(error)) from error
        if module_id not in known:
            raise ModuleUnavailable(f"module {module_id} is not registered")
        return known[module_id]

    async def close(self) -> None:
        """Do nothing: the file is open only while it is read."""


class Consul:
    """
    Services of Consul, named after their modules.

    An instance is healthy if all its checks pass, those of its node included. Calls go to the
    healthy instances in turn, so that a retry reaches another one.
    """

    def __init__(self, url: str, *, token: str = "") -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise ConfigError(f"a URL of Consul must name a host, got {url!r}")
        self._url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
        self._query = parts.query  # such as dc=eu or tag=v2
        headers = {"X-Consul-Token": token} if token else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=TIMEOUT, trust_env=False)
        self._turns = count()

    async def address(self, module_id: str) -> str:
        """Return the address of a healthy instance."""
        instances = await self._instances(module_id)
        if not instances:
            raise ModuleUnavailable(f"module {module_id} is not registered in Consul")
        healthy = [one for one in instances if one.is_healthy]
        if not healthy:
            raise ModuleUnavailable(
                f"no instance of module {module_id} passes its health checks in Consul;"
                f" registered are {len(instances)}"
            )
        return healthy[next(self._turns) % len(healthy)].address

    async def close(self) -> None:
        """Close connections."""
        await self._client.aclose()

    async def _instances(self, module_id: str) -> list["_Instance"]:
        url = f"{self._url}/v1/health/service/{quote(module_id, safe='')}?{self._query}"
        try:
            answer = await self._client.get(url)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise _lookup_failed(module_id, f"Consul does not answer: {why}") from error
        if not answer.is_success:
            said = f"Consul answered {answer.status_code}: {answer.text[:200].strip()}"
            raise _lookup_failed(module_id, said)
        try:
            return _instances.decode(answer.content)
        except msgspec.DecodeError as error:
            raise _lookup_failed(module_id, f"the answer is not Consul's: {error}") from error


class _Check(Struct, frozen=True, rename="pascal"):
    status: str = ""


class _Node(Struct, frozen=True, rename="pascal"):
    address: str = ""


class _Service(Struct, frozen=True, rename="pascal"):
    port: int
    address: str = ""  # empty: that of its node


class _Instance(Struct, frozen=True, rename="pascal"):
    service: _Service
    node: _Node = _Node()
    checks: list[_Check] = []

    @property
    def is_healthy(self) -> bool:
        return all(check.status == "passing" for check in self.checks)

    @property
    def address(self) -> str:
        host = self.service.address or self.node.address
        return f"[{host}]:{self.service.port}" if ":" in host else f"{host}:{self.service.port}"


_addresses: Final = msgspec.json.Decoder(dict[str, str])
_instances: Final = msgspec.json.Decoder(list[_Instance])


def _lookup_failed(module_id: str, why: str) -> ModuleUnavailable:
    return ModuleUnavailable(f"module {module_id} cannot be looked up: {why}")
