"""Asking a consumer for messages, without polling and without losing any."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from deadletter.core.errors import BackendError, Unavailable

from .errors import KNOWN, Unheard, translated
from .link import Link, Sending, new_inbox
from .names import Place

_NANO: Final = 1_000_000_000
_GRACE: Final = 5.0  # seconds the server may be late to say that time is up
_HEARTBEAT: Final = "100"
_OVER: Final = frozenset({"404", "408"})  # no more there; time is up
_LONGEST: Final = 5.0  # seconds of a request, so that one given up is soon over
_encode: Final = msgspec.json.Encoder().encode

GiveBack: TypeAlias = Callable[[list[Msg]], object]


class Pull:
    """
    A place where deliveries arrive, one request at a time.

    The server answers a request with what there is, waiting for the first one; then
    it says that it has ended. So nothing is under way between requests.
    """

    def __init__(self, link: Link, place: Place) -> None:
        self._link = link
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{place.stream}.{place.durable}"
        self._inbox = new_inbox()
        self._subscription: Subscription | None = None
        self._client: Client | None = None  # which the subscription is of
        self._left = 0  # deliveries that may still come for this request
        self._found: list[Msg] = []
        self._ended: asyncio.Future[None] | None = None
        self._give_back: GiveBack | None = None  # nobody waits any more

    async def take(self, limit: int, wait: float) -> list[Msg]:
        """Up to `limit` deliveries, waiting for the first: some of `wait` seconds."""
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
            raise Unavailable("the server does not answer a fetch") from error
        except BackendError:
            self._left = 0  # it was never asked, or has said that it is over
            raise
        finally:
            self._ended = None
            if ended.done() and not ended.cancelled():
                ended.exception()  # looked at, also when sending failed first
        found, self._found = self._found, []
        return found

    def give_up(self, give_back: GiveBack) -> None:
        """
        Want no more, and have everything given back that comes all the same.

        To stop listening would lose what the server is about to send. So we listen
        until the request is over, which is soon.
        """
        self._give_back = give_back
        if self._found:
            found, self._found = self._found, []
            give_back(found)
        if not self._left:
            self._over()

    async def close(self) -> None:
        """Stop listening."""
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
            self._end(Unheard(f"the consumer does not answer a fetch: {told}"))

    def _cut(self) -> None:
        # What has come is ours, whatever became of the others.
        lost = Unavailable("the connection to the server was cut")
        self._end(None if self._found else lost)

    def _end(self, error: Exception | None) -> None:
        """The request is over."""
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
