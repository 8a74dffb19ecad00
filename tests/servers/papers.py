"""Certificates of a private authority, and what ends TLS for a server that cannot."""

import asyncio
import os
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from .common import HOST


class Papers:
    """The files that servers and URLs name."""

    def __init__(self, directory: Path) -> None:
        self.authority = directory / "authority.pem"
        self.stranger = directory / "stranger.pem"  # an authority that signed nothing
        self.server = directory / "server.pem"  # the key, and the certificate
        self.client = directory / "client.pem"

    def write(self, owner: int | None = None) -> None:
        """Make them all; what is secret is for the owner alone."""
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        trustme.CA().cert_pem.write_to_path(self.stranger)
        server = authority.issue_cert(HOST, "localhost")
        client = authority.issue_cert("client@deadletter.test")
        for file, cert in ((self.server, server), (self.client, client)):
            chain = b"".join(pem.bytes() for pem in cert.cert_chain_pems)
            file.touch(mode=0o600)
            file.write_bytes(_as_java_reads_it(cert.private_key_pem.bytes()) + chain)
            if owner is not None and file is self.server:
                os.chown(file, owner, owner)

    def context(self) -> ssl.SSLContext:
        """What a client connects with."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.client)
        return context

    def server_context(self) -> ssl.SSLContext:
        """What a server listens with; it wants to see the client's certificate."""
        purpose = ssl.Purpose.CLIENT_AUTH
        context = ssl.create_default_context(purpose, cafile=self.authority)
        context.load_cert_chain(self.server)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class Front:
    """Listens with TLS on one port, and passes on what it hears to another."""

    def __init__(self, context: ssl.SSLContext, port: int, to: int) -> None:
        self._context, self._port, self._to = context, port, to
        self._listens = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()))
        self._thread.start()
        if not self._listens.wait(10):
            raise TimeoutError("nothing listens with TLS")

    def close(self) -> None:
        """Be gone, with every connection."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _listen(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._serve, HOST, self._port, ssl=self._context):
            self._listens.set()
            await self._over.wait()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(HOST, self._to)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_carry(reader, to_server), _carry(from_server, writer))
        except asyncio.CancelledError:  # asyncio would complain of it
            return
        finally:
            to_server.transport.abort()
            writer.transport.abort()


async def _carry(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


def _as_java_reads_it(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
