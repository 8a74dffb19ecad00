"""Fetching messages of a consumer, without polling and without losing any."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from deadletter.core.errors import BackendError, Unavailable

from .connection import Link, Sending, new_inbox
from .errors import KNOWN, NoResponder, translated
from .streams import MailboxNames

_NANO: Final = 1_000_000_000
_GRACE: Final = 5.0  # seconds that the server may be late
_HEARTBEAT: Final = "100"
_OVER: Final = frozenset({"404", "408"})  # no messages; time is up
_LONGEST: Final = 5.0  # seconds of a request: an abandoned one ends soon
_encode: Final = msgspec.json.Encoder().encode
GiveBack: TypeAlias = Callable[[list[Msg]], object]


class Pull:
    """
    Fetches deliveries, one request at a time.

    The server answers a request with the messages it has, waits for the first one, and
    reports the end. So nothing is under way between requests.
    """

    def __init__(self, link: Link, place: MailboxNames) -> None:
        self._link = link
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{place.stream}.{place.durable}"
        self._inbox = new_inbox()
        self._subscription: Subscription | None = None
        self._client: Client | None = None  # of the subscription
        self._left = 0  # deliveries that may still come for this request
        self._found: list[Msg] = []
        self._ended: asyncio.Future[None] | None = None
        self._give_back: GiveBack | None = None  # set when abandoned

    async def take(self, limit: int, wait: float) -> list[Msg]:
        """Fetch up to `limit` deliveries; wait for the first, up to `wait` seconds."""
        wait = min(wait, _LONGEST)
        self._left, self._found = limit, []
        ended = self._ended = asyncio.get_running_loop().create_future()
        request: dict[str, object] = {"batch": limit, "no_wait": True}
        if wait > 0:
            request["expires"] = max(1_000_000, int(wait * _NANO))
        self._link.on_cut[self._cut] = None
        sending = Sending(self._subject, _encode(request))
        try:
            async with asyncio.timeout(wait + _GRACE):
                await self._subscribe()
                await self._link.send(sending, self._inbox)
                await ended
        except TimeoutError as error:
            self._left = 0
            self._link.renew()
            raise Unavailable("the server did not answer a fetch") from error
        except BackendError:
            self._left = 0  # the request was not sent, or has ended
            raise
        finally:
            self._ended = None
            if ended.done() and not ended.cancelled():
                ended.exception()  # retrieved, also when sending failed first
        found, self._found = self._found, []
        return found

    def give_up(self, give_back: GiveBack) -> None:
        """
        Abandon the request, and release everything that still arrives.

        Unsubscribing at once would lose what the server is about to send, so the
        subscription stays until the request has ended.
        """
        self._give_back = give_back
        if self._found:
            found, self._found = self._found, []
            give_back(found)
        if not self._left:
            self._over()

    async def close(self) -> None:
        """Unsubscribe."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(*KNOWN):
                await subscription.unsubscribe()

    async def _subscribe(self) -> None:
        client = self._link.client
        if client is self._client:
            return
        try:
            self._subscription = await client.subscribe(
                self._inbox, cb=self._arrived, pending_bytes_limit=0
            )
        except KNOWN as error:
            raise translated(error) from error
        self._client = client

    async def _arrived(self, msg: Msg) -> None:
        if msg.reply:
            self._left -= 1
            if self._give_back is None:
                self._found.append(msg)
            else:
                self._give_back([msg])
            if self._left <= 0:
                self._end(None)
            return
        headers = msg.headers or {}
        status = headers.get("Status")
        if status == _HEARTBEAT:
            return
        if status in _OVER or self._found:
            self._end(None)
        else:
            told = f"{status} {headers.get('Description', '')}".strip()
            self._end(NoResponder(f"the consumer does not answer a fetch: {told}"))

    def _cut(self) -> None:
        # What has arrived is claimed, whatever happened to the others.
        lost = Unavailable("the connection to the server was cut")
        self._end(None if self._found else lost)

    def _end(self, error: Exception | None) -> None:
        """End the request."""
        self._left = 0
        self._link.on_cut.pop(self._cut, None)
        if self._give_back is not None:
            self._over()
        ended = self._ended
        if ended is None or ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    def _over(self) -> None:
        self._link.on_cut.pop(self._cut, None)
        self._link.start(self.close())
