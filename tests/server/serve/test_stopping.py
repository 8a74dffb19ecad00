"""The shutdown of a server: its order, and requests in progress."""

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from deadletter.ports import QueueOptions
from deadletter.wiring.engines import opened
from office.making import make_letter
from server.serve.conftest import WITHIN, Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]
LETTERS = "/api/v1/letters"
QUEUE = {
    "queue_name": "orders",
    "lease_timeout": "1m",
    "expire_timeout": "10m",
    "requested_partitions": 1,
}
LEASE = {"queue_name": "orders", "client_id": "one", "batch_size": 1, "request_timeout": "60s"}


def call(served: Served, name: str, body: dict[str, Any]) -> httpx.Response:
    with served.client() as client:
        return client.post(f"/v1/{name}", json=body)


class Waiting:
    """A request in progress in a separate thread."""

    def __init__(self, served: Served, name: str, body: dict[str, Any]) -> None:
        self.answer: httpx.Response | None = None
        self._thread = threading.Thread(target=self._ask, args=(served, name, body))
        self._thread.start()

    def _ask(self, served: Served, name: str, body: dict[str, Any]) -> None:
        self.answer = call(served, name, body)

    def answered(self) -> httpx.Response:
        self._thread.join(WITHIN)
        assert self.answer is not None
        return self.answer


class HalfSaid:
    """A request in progress, whose body is incomplete."""

    def __init__(self, served: Served) -> None:
        host, port = served.url.removeprefix("http://").split(":")
        self._socket = socket.create_connection((host, int(port)), WITHIN)
        self._body = json.dumps(QUEUE).encode()
        self._socket.sendall(
            b"POST /v1/queues.create HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(self._body) + self._body[:5]
        )

    def say_the_rest(self) -> bytes:
        self._socket.sendall(self._body[5:])
        answer = b""
        while part := self._socket.recv(65536):
            answer += part
        self._socket.close()
        return answer

    def hang_up(self) -> None:
        self._socket.close()


def is_closed(served: Served) -> bool:
    try:
        with served.client() as client:
            client.get("/health/live")
    except httpx.TransportError:
        return True
    return False


def leases_waiting(served: Served) -> int:
    answer = call(served, "queue.stats", {"queue_name": "orders"})
    return int(answer.json()["logicalQueues"][0]["lease_waiting"])


def test_readiness_fails_before_anything_else_stops(serve: Serve) -> None:
    served = serve("--access", "off", DLQ_SERVE_NOTICE="2")
    with served.client() as client:
        served.until(lambda: client.get("/health/ready").status_code == 200)
        served.signal()
        served.until(lambda: client.get("/health/ready").status_code == 503)
        answer = client.get(LETTERS)
        health = client.get("/health").json()

    assert answer.status_code == 200
    assert health["status"] == "fail"
    assert health["checks"]["loop:running"][0]["output"] == "stopping"
    assert served.ended() == 0


def test_a_waiting_lease_is_told_to_ask_again(serve: Serve) -> None:
    served = serve("--access", "off")
    assert call(served, "queues.create", QUEUE).status_code == 200
    waiting = Waiting(served, "queue.lease", LEASE)
    served.until(lambda: leases_waiting(served) == 1)

    began = time.monotonic()
    served.signal()
    answer = waiting.answered()

    assert answer.status_code == 454
    assert "shutting down" in answer.json()["message"]
    assert served.ended() == 0
    assert time.monotonic() - began < 10


def test_a_request_under_way_is_answered(serve: Serve) -> None:
    served = serve("--access", "off")
    request = HalfSaid(served)
    served.until(lambda: not is_closed(served))
    served.signal()
    served.until(lambda: is_closed(served))

    answer = request.say_the_rest()

    assert answer.startswith(b"HTTP/1.1 200")
    assert served.ended() == 0
    again = serve("--access", "off")
    assert call(again, "queue.stats", {"queue_name": "orders"}).status_code == 200


@pytest.mark.slow
def test_event_listeners_do_not_delay_shutdown(serve: Serve) -> None:
    served = serve("--access", "off")
    with served.client() as client, client.stream("GET", "/api/v1/events") as events:
        assert events.status_code == 200
        began = time.monotonic()
        served.signal()
        for _ in events.iter_raw():
            pass

    assert served.ended() == 0
    assert time.monotonic() - began < 10


def test_the_second_signal_does_not_wait(serve: Serve) -> None:
    served = serve("--access", "off", DLQ_SERVE_GRACE="300")
    request = HalfSaid(served)
    served.until(lambda: not is_closed(served))
    served.signal()
    served.until(lambda: is_closed(served))
    time.sleep(0.15)  # two at the same moment count as one

    began = time.monotonic()
    served.signal(signal.SIGINT)

    assert served.ended() == 130
    assert time.monotonic() - began < 10
    request.hang_up()


@pytest.mark.slow
def test_grace_is_not_endless(serve: Serve) -> None:
    served = serve("--access", "off", DLQ_SERVE_GRACE="1")
    request = HalfSaid(served)
    served.until(lambda: not is_closed(served))

    served.signal()

    assert served.ended() == 0
    assert "graceful shutdown exceeded" in served.said
    request.hang_up()


@pytest.mark.slow
def test_a_server_that_was_killed_leaves_a_store_that_opens(serve: Serve) -> None:
    served = serve("--access", "off")
    assert call(served, "queues.create", QUEUE).status_code == 200
    served.signal(signal.SIGKILL)
    served.ended()

    again = serve("--access", "off")

    assert call(again, "queue.stats", {"queue_name": "orders"}).status_code == 200


@pytest.mark.slow
def test_a_replay_stops_between_batches_and_the_next_server_goes_on(serve: Serve) -> None:
    letters = [make_letter(number) for number in range(60)]

    async def keep() -> None:
        async with opened() as engine:
            await engine.broker.create(QueueOptions(name="orders"))
            await engine.letters.keep(letters)

    asyncio.run(keep())
    first = serve("--access", "off")
    wish = {"query": "source:orders", "expect": 60, "rate": 20, "reason": "fixed"}
    with first.client() as client:
        begun = client.post("/api/v1/replays", json=wish).json()
        path = f"/api/v1/replays/{begun['replay']['id']}"
        first.until(lambda: client.get(path).json()["counts"].get("sent", 0) > 5)
    first.signal()
    assert first.ended() == 0

    second = serve("--access", "off")
    with second.client() as client:
        left = client.get(path).json()["counts"]
        second.until(lambda: client.get(path).json()["counts"].get("sent") == 60)
        queues = client.get("/api/v1/queues").json()

    assert left.get("planned", 0) > 0
    assert [queue["ready"] for queue in queues] == [60]  # none twice


def test_a_server_ends_when_its_database_is_replaced(serve: Serve, tmp_path: Path) -> None:
    served = serve("--access", "off")
    assert served.url
    other = tmp_path / "other.db"
    other.touch()
    other.rename(tmp_path / "office.db")

    assert served.ended() == 7
    assert "office.db was replaced by another file" in served.said
    assert (tmp_path / "office.db").stat().st_size == 0
