"""A tap on the wire between the relayer and SQS: every call, and when it was made."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import uvicorn
from msgspec import Struct

from deadletter.testing.fakes import eventually
from systems.relayer.rig import SOON, Quiet


class Call(Struct, kw_only=True):
    """One call of SQS."""

    verb: str
    asked: dict[str, Any]
    began: float
    ended: float = 0.0
    answered: dict[str, Any] = {}

    @property
    def queue(self) -> str:
        return str(self.asked.get("QueueUrl", "")).rpartition("/")[2]


class Tap:
    """Hands everything on, both ways, and remembers it."""

    def __init__(self, to: httpx.AsyncClient) -> None:
        self.calls: list[Call] = []
        self.url = ""
        self._to = to

    def of(self, verb: str, ending: str) -> list[Call]:
        """Calls of one kind, to queues whose names end like that."""
        return [call for call in self.calls if call.verb == verb and call.queue.endswith(ending)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand one request on."""
        body = b""
        while (event := await receive()).get("more_body"):
            body += event["body"]
        body += event["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        now = asyncio.get_running_loop().time
        verb = headers.get("x-amz-target", "").rpartition(".")[2]
        call = Call(verb=verb, asked=json.loads(body or b"{}"), began=now())
        self.calls.append(call)
        answer = await self._to.post(scope["path"], content=body, headers=headers)
        call.ended, call.answered = now(), answer.json()
        kept = {"content-type", "x-amzn-requestid", "x-amz-crc32"}
        told = [(n, v) for n, v in answer.headers.raw if n.decode().lower() in kept]
        start = {"status": answer.status_code, "headers": told}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": answer.content})


@asynccontextmanager
async def tapped(url: str) -> AsyncIterator[Tap]:
    """A tap on the wire to a server."""
    patience = httpx.Timeout(60)
    async with httpx.AsyncClient(base_url=url, timeout=patience) as to:
        tap = Tap(to)
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            config = uvicorn.Config(tap, log_config=None, lifespan="off", ws="none")
            server = Quiet(config)
            serving = asyncio.create_task(server.serve([listener]))
            await eventually(lambda: server.started or serving.done(), within=SOON)
            tap.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            try:
                yield tap
            finally:
                server.should_exit = True
                await serving
