"""Requests to an application without a client, to observe the start of endless answers."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar
from litestar.types import HTTPScope, Message

_WITHIN = 10.0  # seconds in which every answer has begun


class Answer:
    """The answer to a request so far."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.body = b""
        self.is_over = False


async def status_of(app: Litestar, method: str, path: str, secret: str | None) -> int:
    """How an answer begins; whatever else it would say is cut off."""
    async with answer_of(app, method, path, secret) as answer:
        return answer.status


@asynccontextmanager
async def answer_of(
    app: Litestar, method: str, path: str, secret: str | None
) -> AsyncIterator[Answer]:
    """An answer that has begun; it goes on until this is left."""
    begun: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    asked = iter([b"{}"])

    async def receive() -> Message:
        for body in asked:
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            begun.set_result(Answer(message["status"]))
        elif message["type"] == "http.response.body":
            answer = begun.result()
            answer.body += message["body"]
            answer.is_over = not message["more_body"]

    task = asyncio.ensure_future(app(_scope(method, path, secret), receive, send))
    try:
        await asyncio.wait({task, begun}, timeout=_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        assert begun.done(), f"{method} {path} did not answer"
        yield begun.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


def _scope(method: str, path: str, secret: str | None) -> HTTPScope:
    asked = re.sub(r"\{\w+\}", "nothing", path)
    headers = [(b"host", b"dlq.example"), (b"content-type", b"application/json")]
    if secret is not None:
        headers.append((b"authorization", f"Bearer {secret}".encode()))
    return {  # type: ignore[typeddict-item]
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": asked,
        "raw_path": asked.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("10.0.0.1", 1234),
        "server": ("dlq.example", 80),
        "state": {},
    }
