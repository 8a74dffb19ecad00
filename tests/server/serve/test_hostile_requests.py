"""Requests that waste memory, and request smuggling."""

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from server.serve.conftest import Served

pytestmark = pytest.mark.slow

Serve = Callable[..., Served]

MEGA = 1024 * 1024
CHUNKED = (
    b"POST /api/v1/session HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n"
)
AMBIGUOUS = [
    b"host: 127.0.0.1\r\nhost: evil.example\r\n",
    b"",
    b"host: 127.0.0.1/../x\r\n",
    b"host: a b\r\n",
    b"host: 127.0.0.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n",
    b"host: 127.0.0.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n",
    b"host: 127.0.0.1\r\ncontent-length: +3\r\n",
    b"host: 127.0.0.1\r\ntransfer-encoding: chunked, identity\r\n",
    b"host: 127.0.0.1\r\ntransfer-encoding : chunked\r\n",
    b"host: 127.0.0.1\r\nx-\x00a: b\r\n",
    b"host: 127.0.0.1\r\nx a: b\r\n",
    b"host: 127.0.0.1\r\nx-a: b\r\n c\r\n",
    b"host: 127.0.0.1\r\nx-a: b\rc: d\r\n",
]
ALWAYS = {
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "cache-control",
}


def asked(served: Served, *parts: bytes, within: float = 20.0) -> bytes:
    """Send bytes and return what the server answers until it closes or is silent."""
    host, port = re.fullmatch(r"http://(.+):(\d+)", served.url).groups()  # type: ignore[union-attr]
    heard = b""
    with socket.create_connection((host, int(port)), timeout=within) as wire:
        try:
            for part in parts:
                wire.sendall(part)
            while not is_whole(heard) and (some := wire.recv(65_536)):
                heard += some
        except OSError:
            pass  # it hung up on us
    return heard


def is_whole(heard: bytes) -> bool:
    """Return whether the answer is complete."""
    head, end, body = heard.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(end) and length is not None and len(body) >= int(length[1])


def live(served: Served) -> int:
    with served.client() as client:
        return client.get("/health/live").status_code


def statuses(heard: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", heard)]


def names_of(heard: bytes) -> set[str]:
    head = heard.partition(b"\r\n\r\n")[0].decode("latin-1")
    return {line.partition(":")[0].lower() for line in head.splitlines()[1:]}


def memory(served: Served) -> int:
    """Return the memory of the server, in bytes."""
    text = Path(f"/proc/{served.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture
def served(serve: Serve) -> Served:
    there = serve()
    assert there.token
    return there


class TestTrailers:
    """Trailers after a chunked body."""

    def test_trailers_without_end_cost_nothing(self, served: Served) -> None:
        asked(served, CHUNKED + b"\r\n")
        before = memory(served)
        line = b"x-%06d: " + b"a" * 1_000 + b"\r\n"
        many = b"".join(line % number for number in range(1_000))

        heard = asked(served, CHUNKED, *[many] * 25)

        assert memory(served) - before < 8 * MEGA
        assert statuses(heard) in ([], [431])  # it may hang up before we listen
        assert live(served) == 200

    def test_one_trailer_without_end_costs_nothing(self, served: Served) -> None:
        asked(served, CHUNKED + b"\r\n")
        before = memory(served)

        heard = asked(served, CHUNKED, b"x-a: ", *[b"a" * MEGA] * 25)

        assert memory(served) - before < 8 * MEGA
        assert statuses(heard) in ([], [431])

    def test_chunk_extensions_without_end_are_refused(self, served: Served) -> None:
        head = CHUNKED.partition(b"2\r\n{}")[0]

        heard = asked(served, head, b"2;x=", *[b"a" * MEGA] * 25)

        assert statuses(heard) in ([], [431])

    def test_a_body_in_tiny_chunks_is_taken(self, served: Served) -> None:
        head = CHUNKED.partition(b"2\r\n{}")[0]
        text = b'{"token": "%s"}' % served.token.encode()
        chunks = b"".join(b"1\r\n%c\r\n" % one for one in text + b" " * 20_000)

        heard = asked(served, head, chunks, b"0\r\nx-a: b\r\n\r\n")

        assert statuses(heard) == [201]

    def test_a_token_in_a_trailer_lets_nobody_in(self, served: Served) -> None:
        head = b"GET /api/v1/session HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        chunked = b"transfer-encoding: chunked\r\n\r\n0\r\n"
        token = b"authorization: Bearer %s\r\n\r\n" % served.token.encode()

        assert statuses(asked(served, head + token)) == [200]
        assert statuses(asked(served, head + chunked + token)) == [401]

    def test_no_proxy_is_believed_in_a_trailer(self, serve: Serve) -> None:
        served = serve(DLQ_SERVE_PROXIES="127.0.0.1")
        assert served.token
        body = b'{"token": "no"}'
        login = CHUNKED.replace(b"2\r\n{}", b"%x\r\n%s" % (len(body), body))
        for number in range(12):
            forwarded = b"x-forwarded-for: 10.0.0.%d\r\n\r\n" % number
            heard = asked(served, login + forwarded)

        # All of them were counted for one address, the proxy's own.
        assert statuses(heard) == [429]


class TestHeads:
    """Heads of requests."""

    def test_headers_are_bounded_in_size_and_number(self, served: Served) -> None:
        start = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        long = asked(served, start, b"x-a: " + b"a" * MEGA)
        many = asked(served, start + b"a:\r\n" * 300 + b"\r\n")

        assert statuses(long) in ([], [431])
        assert statuses(many) == [431]
        assert names_of(many) >= ALWAYS

    def test_pipelined_requests_are_bounded(self, served: Served) -> None:
        probe = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        before = memory(served)

        asked(served, *[probe * 1_000] * 20)

        assert memory(served) - before < 16 * MEGA
        assert live(served) == 200

    def test_a_request_that_may_mean_two_things_is_refused(self, served: Served) -> None:
        wrong = {}
        for head in AMBIGUOUS:
            for path in (b"/health/live", b"/nowhere", b"/api/v1/letters"):
                body = b"abc" if b"content-length" in head else b""
                heard = asked(served, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, head), body)
                if statuses(heard) != [400] or not names_of(heard) >= ALWAYS:
                    wrong[path, head] = heard

        assert wrong == {}

    def test_invalid_http_is_answered_with_all_security_headers(self, served: Served) -> None:
        heard = asked(served, b"\x16\x03\x01 hello\r\n\r\n")

        assert statuses(heard) == [400]
        assert names_of(heard) >= ALWAYS

    def test_slow_clients_get_a_timeout_response(self, serve: Serve) -> None:
        served = serve(program=_HURRIED)
        assert served.token
        begun = time.monotonic()

        heard = asked(served, b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n")

        assert statuses(heard) == [408]
        assert names_of(heard) >= ALWAYS
        assert time.monotonic() - begun < 15


_HURRIED = """
from deadletter.server import listener
listener.HEAD_WITHIN = 0.5
from deadletter.cli import main
main()
"""
