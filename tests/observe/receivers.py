"""Those who are told: an HTTP server and a mail server, real ones, in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default


@dataclass
class Hook:
    """Takes requests, answers as told; `hang`: never, `drip`: byte by byte."""

    url: str = ""
    answers: list[str] = field(default_factory=list)  # status lines, first to last
    hang: bool = False
    drip: bool = False
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")[1:-2]
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        self.headers.append(headers)
        self.bodies.append(await reader.readexactly(int(headers["content-length"])))
        if self.hang:
            await asyncio.sleep(60)
        while self.drip:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.05)
        status = self.answers.pop(0) if self.answers else "204 No Content"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        with suppress(ConnectionError):
            await writer.drain()


@dataclass
class PostOffice:
    """Takes mail by SMTP."""

    url: str = ""
    refuse: bool = False
    mails: list[EmailMessage] = field(default_factory=list)
    to: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # to us, line by line

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        say("220 post.test ESMTP")
        while line := (await reader.readline()).decode().strip():
            self.said.append(line)
            verb = line.partition(" ")[0].upper()
            if verb == "EHLO":
                say("250-post.test")
                say("250 AUTH PLAIN LOGIN")
            elif verb == "MAIL" and self.refuse:
                say("451 come back later")
            elif verb == "RCPT":
                self.to.append(line.partition("<")[2].rstrip(">"))
                say("250 ok")
            elif verb == "DATA":
                say("354 go on")
                raw = await reader.readuntil(b"\r\n.\r\n")
                text = raw.removesuffix(b".\r\n").replace(b"\r\n..", b"\r\n.")
                self.mails.append(message_from_bytes(text, policy=default))
                say("250 taken")
            elif verb == "QUIT":
                say("221 bye")
                break
            else:
                say("250 ok")


@asynccontextmanager
async def listening(one: Hook | PostOffice, scheme: str) -> AsyncIterator[None]:
    """Let it be reached at its `url` meanwhile."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(task := asyncio.ensure_future(one.talk(reader, writer)))
        with suppress(asyncio.CancelledError):
            await task
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    one.url = f"{scheme}://127.0.0.1:{port}"
    try:
        yield
    finally:
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
