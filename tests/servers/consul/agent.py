"""Consul: the one on the PATH, or built from its Go module into `.servers`."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from ..common import HOST, PASSWORD, Server, free_port, program

SETTINGS = f"""
disable_update_check = true
acl {{
  enabled = true
  default_policy = "deny"
  tokens {{ initial_management = "{PASSWORD}" }}
}}
"""


class Consul(Server):
    """
    An agent of its own, with catalog and health checks in memory; it asks for a token.

    Registrations end with the process: register again after a restart.
    """

    name = "consul"
    ready_within = 60.0
    token = PASSWORD

    @classmethod
    def find(cls) -> dict[str, Path]:
        return {"server": program("consul", "bin/consul")}

    def make_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        inner = [f"-{name}-port={free_port()}" for name in ("server", "serf-lan", "serf-wan")]
        return [
            *(str(self.programs["server"]), "agent", "-dev", "-log-level=warn"),
            *(f"-bind={HOST}", f"-client={HOST}", f"-http-port={self.port}"),
            *("-dns-port=-1", "-grpc-port=-1", "-disable-host-node-id", *inner),
            *("-hcl", SETTINGS),
        ]

    def is_ready(self) -> bool:
        return bool(self._call("GET", "/v1/status/leader"))

    def register(self, service: str, address: str) -> None:
        """Register an instance with a check that passes."""
        host, _, port = address.rpartition(":")
        self._call(
            "PUT",
            "/v1/agent/service/register",
            {
                "ID": f"{service}-{port}",
                "Name": service,
                "Address": host,
                "Port": int(port),
                "Check": {"TTL": "1h", "Status": "passing"},
            },
        )

    def fail_check(self, service: str, address: str) -> None:
        """Report that the check of an instance fails."""
        port = address.rpartition(":")[2]
        self._call("PUT", f"/v1/agent/check/fail/service:{service}-{port}")

    def deregister(self, service: str, address: str) -> None:
        """Remove an instance."""
        port = address.rpartition(":")[2]
        self._call("PUT", f"/v1/agent/service/deregister/{service}-{port}")

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"X-Consul-Token": self.token},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            text = answer.read()
        return json.loads(text) if text else None
