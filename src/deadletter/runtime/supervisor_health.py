"""
A supervisor's answers to probes: that it lives, and how its children are.

Each child answers on a socket that the supervisor made for it, and is asked there
whenever somebody asks us. It is ready when every child is.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec

from deadletter.core.errors import NotFound, Unavailable

from .health import Complaint, HealthServer

PATIENCE: Final = 2.0  # seconds for a child; whoever probes us waits little longer

Gather: TypeAlias = Callable[[Mapping[str, bytes]], bytes]
"""Makes one text for Prometheus of those of several processes, by their number."""
Address: TypeAlias = tuple[str, int]


@contextmanager
def answer_probes(
    processes: int, *, host: str, port: int, depth_threshold: int, gather: Gather
) -> Iterator[Sequence[socket.socket]]:
    """
    Answer probes for so many children, from a thread of its own.

    Gives the sockets they are to answer on, in the order of their places.
    """
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(processes)
        ]
        children = Children([one.getsockname() for one in listeners], gather)
        server = HealthServer(
            children.complaints,
            notes=children.notes,
            host=host,
            port=port,
            depth=children.depth,
            depth_threshold=depth_threshold,
            metrics=children.metrics,
        )
        stack.enter_context(_on_a_thread(server))
        yield listeners


@contextmanager
def _on_a_thread(server: HealthServer) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="dlq-health", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Children:
    """The processes at some addresses, asked how they are."""

    def __init__(self, addresses: Sequence[Address], gather: Gather) -> None:
        self._addresses = addresses
        self._gather = gather

    async def complaints(self) -> list[Complaint]:
        """Return why they are not ready, child by child."""
        found: list[Complaint] = []
        for number, answer in enumerate(await self._ask_all("/health/ready")):
            name = f"process {number}"
            if answer is None:
                found.append(Complaint(name, "it does not answer"))
            elif answer[0] != HTTPStatus.OK:
                reasons = msgspec.json.decode(answer[1])["reasons"]
                found += [Complaint(f"{name}, {one['loop']}", one["reason"]) for one in reasons]
        return found

    async def notes(self) -> list[Complaint]:
        """Return what people should know although the processes are ready."""
        answers = enumerate(await self._ask_all("/health/ready"))
        return [
            Complaint(f"process {number}, {one['loop']}", one["reason"])
            for number, answer in answers
            if answer is not None
            for one in msgspec.json.decode(answer[1]).get("notes", ())
        ]

    async def depth(self) -> dict[str, int]:
        """Return how deep the dead-letter mailboxes are, as the first to know says."""
        for address in self._addresses:
            answer = await _ask(address, "/health/dlq")
            if answer is not None and answer[0] == HTTPStatus.OK:
                dlqs: list[dict[str, Any]] = msgspec.json.decode(answer[1])["dlqs"]
                return {dlq["name"]: dlq["depth"] for dlq in dlqs}
        raise Unavailable("no process knows")

    async def metrics(self) -> bytes:
        """Return what those that answer have counted."""
        answers = await self._ask_all("/metrics")
        texts = {
            str(number): answer[1]
            for number, answer in enumerate(answers)
            if answer is not None and answer[0] == HTTPStatus.OK
        }
        if not texts:
            said = [msgspec.json.decode(answer[1]) for answer in answers if answer]
            raise NotFound(said[0]["error"] if said else "no process answers")
        return self._gather(texts)

    async def _ask_all(self, path: str) -> list[tuple[int, bytes] | None]:
        return await asyncio.gather(*(_ask(one, path) for one in self._addresses))


async def _ask(address: Address, path: str) -> tuple[int, bytes] | None:
    """Status and body of an answer; None when there is none in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
        return int(head.split()[1]), body
    except (OSError, TimeoutError, IndexError, ValueError):
        return None
