"""
Connections that cannot be held for nothing.

Anybody who reaches the port can open one, before anything is known of them. So what
they have not said after a while, or say without end, ends the connection: one that
says nothing would otherwise cost a socket for ever, and one that never stops telling
headers all our memory. Waiting for an answer costs them nothing and is not counted.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_WITHIN: Final = 20.0  # seconds from the first byte wanted to the last header
HEAD_SIZE: Final = 64 * 1024  # bytes, or what has come in one piece
BODY_WITHIN: Final = 30.0  # seconds, and one more for every
BODY_RATE: Final = 1_000  # bytes that came
TAKEN_WITHIN: Final = 60.0  # seconds that an answer may lie without being fetched


class Connection(HttpToolsProtocol):
    """Uvicorn's, with an eye on the time; `look` is to be called now and then."""

    _since: float | None = None  # when we began to wait for a head or a body
    _in_body: bool = False
    _got: int = 0  # bytes of it
    _full_since: float | None = None  # when what we wrote stopped being fetched

    def look(self, now: float) -> None:
        """End it, if its client takes too long."""
        if self._full_since is not None and now - self._full_since > TAKEN_WITHIN:
            self.transport.abort()  # closing would wait for it to be fetched
        elif self._since is not None:
            if self._is_our_turn():
                self._since = now
            elif now - self._since > self._patience():
                self.transport.close()

    def _is_our_turn(self) -> bool:
        """Whether the client waits until we want to hear more of it."""
        asks = self._in_body and self.cycle.waiting_for_100_continue
        return asks or self.flow.read_paused

    def _patience(self) -> float:
        return BODY_WITHIN + self._got / BODY_RATE if self._in_body else HEAD_WITHIN

    def _wait(self, *, in_body: bool) -> None:
        self._since = self.loop.time()
        self._in_body = in_body
        self._got = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; it has not said anything."""
        super().connection_made(transport)
        self._wait(in_body=False)

    def data_received(self, data: bytes) -> None:
        """It has said something."""
        self._got += len(data)
        super().data_received(data)
        if self._since is None:
            if self.timeout_keep_alive_task is None and self.cycle.response_complete:
                self._wait(in_body=False)  # for what it has begun to say
        elif not self._in_body and self._got > HEAD_SIZE:
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._since is None:
            self._wait(in_body=False)

    def on_headers_complete(self) -> None:
        """Its body, if any, is to come."""
        super().on_headers_complete()
        self._wait(in_body=True)

    def on_message_complete(self) -> None:
        """It is all there: now they wait for us."""
        super().on_message_complete()
        self._since = None

    def pause_writing(self) -> None:
        """They do not fetch what they asked for."""
        super().pause_writing()
        self._full_since = self.loop.time()

    def resume_writing(self) -> None:
        """They do."""
        super().resume_writing()
        self._full_since = None
