"""A place: an office, its folder, and the processes that work on it."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx

from browser.processes import Dlq, Serve, Work
from deadletter import App

Role: TypeAlias = Literal["reader", "operator", "admin"]


@dataclass(eq=False)
class Place:
    """An office, its folder, and the processes that work on it."""

    folder: Path
    url: str
    running: list[Dlq] = field(default_factory=list)
    _server: Serve | None = None

    def serve(self, *words: str, access: str = "on", port: int = 0, **more: float) -> Serve:
        """Start a server; the first one prints a token."""
        server = Serve(self.folder, self.url, *words, access=access, port=port, **more)
        self.running.append(server)
        self._server = server
        return server

    @property
    def server(self) -> Serve:
        """The server that was started last."""
        assert self._server is not None, "no server was started"
        return self._server

    def work(self, version: str = "1.8.0", **environ: str) -> Work:
        """Start a worker of the shop."""
        worker = Work(self.folder, self.url, version=version, **environ)
        self.running.append(worker)
        return worker

    async def send(self, mailbox: str, bodies: list[Any]) -> None:
        """Send messages to the shop."""
        async with App(self.url) as app:
            await app.send_many(mailbox, bodies)

    async def token(self, role: Role, *sources: str, name: str = "") -> str:
        """Return a new token, made by the administrator of the first start."""
        async with self.api() as api:
            made = await api.post(
                "/tokens", json={"name": name or role, "role": role, "sources": sources}
            )
            assert made.status_code == 201, made.text
            return str(made.json()["token"])

    def api(self, token: str = "") -> httpx.AsyncClient:
        """Return a client of the API; by default the administrator of the first start."""
        given = token or (self.server.first_token if self.server.has_access else "")
        return self.server.client(given)

    async def died(self, count: int, query: str = "is:open") -> list[dict[str, Any]]:
        """Wait until this many letters are in the office, and return up to 200 of them."""
        found: list[dict[str, Any]] = []
        async with self.api() as api:
            for _ in range(600):
                answer = await api.get("/letters/count", params={"query": query})
                assert answer.status_code == 200, answer.text
                if answer.json()["letters"] >= count:
                    listed = await api.get("/letters", params={"query": query, "limit": 200})
                    found = listed.json()["heads"]
                    break
                await asyncio.sleep(0.05)
        assert found or not count, f"fewer than {count} letters of {query!r} after 30 s"
        return found

    def end(self) -> None:
        """End all processes, the newest first."""
        for one in reversed(self.running):
            one.end()
