"""
The way to the server.

Many requests go out together and are awaited together. When the connection is cut,
everybody who waits for an answer is told so at once: it may have been done, or not.
One that brings no answers, or none that can be read, is given up for another.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from secrets import token_hex
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from deadletter.core.errors import Refused, Unavailable
from deadletter.nats_login import Login

from .errors import KNOWN, Unheard, answered, translated
from .line import Line

T = TypeVar("T")

PATIENCE: Final = 10.0  # seconds for an answer
_AT_ONCE: Final = 256  # requests under way together, so that no buffer overflows
_NANO: Final = 1_000_000_000
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Sending(Struct, frozen=True):
    """Something to be sent to the server."""

    subject: str
    payload: bytes = b""
    headers: dict[str, str] | None = None


class _Batch:
    """Answers that are being waited for."""

    def __init__(self, size: int) -> None:
        self.answers: list[Msg | None] = [None] * size
        self.left = size
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


def new_inbox() -> str:
    """A subject that nobody else listens on."""
    return f"_INBOX.{token_hex(11)}"


class Link:
    """
    Asks the server.

    `second` is how long a second of a lease or a delay lasts; tests make it short.
    """

    def __init__(self, login: Login, *, second: float = 1.0) -> None:
        self.second = second
        self._line = Line(login, self)
        self._complaints: list[str] = []  # permissions we were refused lately
        self.on_cut: dict[Callable[[], None], None] = {}
        self._inbox = new_inbox()
        self._batches: dict[str, _Batch] = {}
        self._numbers = count(1)
        self._background: set[asyncio.Task[Any]] = set()

    async def begin(self) -> None:
        """Connect, and listen for answers."""
        await self._line.start()
        await self.begun(self.client)

    async def begun(self, client: Client) -> None:
        """Listen for answers on a new connection."""
        await client.subscribe(f"{self._inbox}.*.*", cb=self._answer)

    @property
    def client(self) -> Client:
        """The client of the library; Unavailable while it is not connected."""
        return self._line.client

    @property
    def is_connected(self) -> bool:
        """Tell whether the connection can send."""
        try:
            return self._line.client.is_connected
        except Unavailable:
            return False

    def renew(self) -> None:
        """Give up a connection that does not answer, or not what can be read."""
        self._line.renew()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read an answer; one that lacks what it must have was changed on the way."""
        try:
            yield
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            self.renew()
            told = f"{type(error).__name__}: {error}"
            raise Unavailable(f"the server's answer cannot be read: {told}") from error

    def nanos(self, seconds: float) -> int:
        """A duration as the server wants to be told."""
        return max(1, int(seconds * self.second * _NANO))

    async def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """Call the JetStream API; what it refuses is raised."""
        payload = b"" if body is None else _encode(body)
        (answer,) = await self.ask_all([Sending(f"$JS.API.{subject}", payload)])
        return answer

    async def ask_all(self, sendings: Sequence[Sending]) -> list[dict[str, Any]]:
        """Send requests together; what is refused of the first refused is raised."""
        said = await self.requests(sendings)
        with self.reading():
            answers = [_read(msg) for msg in said]
            for answer in answers:
                if "error" in answer:
                    raise answered(answer["error"])
        return answers

    async def requests(self, sendings: Sequence[Sending]) -> list[Msg]:
        """Send requests together, and return when all are answered."""
        found: list[Msg] = []
        for start in range(0, len(sendings), _AT_ONCE):
            found += await self._requests(sendings[start : start + _AT_ONCE])
        return found

    async def latest(
        self, stream: str, subjects: Sequence[str]
    ) -> list[tuple[int, bytes] | None]:
        """The last message on each subject: its number and content."""
        prefix = f"$JS.API.DIRECT.GET.{stream}"
        answers = await self.requests([Sending(f"{prefix}.{s}") for s in subjects])
        found: list[tuple[int, bytes] | None] = []
        with self.reading():
            for answer in answers:
                headers = answer.headers or {}
                status = headers.get("Status")
                if status is None:
                    found.append((int(headers["Nats-Sequence"]), answer.data))
                elif status == "404":
                    found.append(None)
                else:
                    raise Unheard(f"{stream} cannot be read at the moment ({status})")
        return found

    async def in_turn(self, sendings: Sequence[Sending]) -> None:
        """
        Send to one consumer, and return when it has dealt with all of them.

        It deals with them in the order they come, one by one, so that the answer
        to the last one stands for all.
        """
        if not sendings:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                for sending in sendings[:-1]:
                    await self.send(sending)
        except TimeoutError as error:
            self.renew()
            raise Unavailable("the server takes nothing any more") from error
        (answer,) = await self._requests(sendings[-1:])
        if _status(answer) == "503":
            raise Unheard("nobody answers for this consumer")

    async def send(self, sending: Sending, reply: str = "") -> None:
        """Send, and wait for nothing."""
        client = self.client
        try:
            await client.publish(
                sending.subject, sending.payload, reply, sending.headers
            )
        except KNOWN as error:
            raise translated(error) from error

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begin something that goes on whoever stops waiting for it."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cut(self) -> None:
        """The connection is gone: tell all who wait."""
        for batch in self._batches.values():
            _fail(batch.done)
        for call in list(self.on_cut):
            call()

    async def error(self, error: Exception) -> None:
        """The client noticed something; what must be known shows elsewhere too."""
        if "ermissions" in str(error):
            self._complaints = [*self._complaints[-9:], str(error)]

    async def close(self) -> None:
        """Finish what is under way, and disconnect."""
        if self._background:
            await asyncio.wait(self._background, timeout=PATIENCE)
        for task in self._background:
            task.cancel()
        await self._line.close()

    async def _requests(self, sendings: Sequence[Sending]) -> list[Msg]:
        if not sendings:
            return []
        key = str(next(self._numbers))
        self._complaints.clear()
        batch = self._batches[key] = _Batch(len(sendings))
        try:
            async with asyncio.timeout(PATIENCE):
                for number, sending in enumerate(sendings):
                    await self.send(sending, f"{self._inbox}.{key}.{number}")
                await batch.done
        except TimeoutError as error:
            if self._complaints:
                raise Refused(_forbidden(self._complaints[-1])) from error
            self.renew()
            raise translated(error, f"no answer within {PATIENCE:g} s") from error
        finally:
            del self._batches[key]
            if batch.done.done() and not batch.done.cancelled():
                batch.done.exception()  # looked at, also when sending failed first
        return [answer for answer in batch.answers if answer is not None]

    async def _answer(self, msg: Msg) -> None:
        _, key, number = msg.subject.rsplit(".", 2)
        batch = self._batches.get(key)
        if batch is None:
            return  # nobody waits for it any more
        place = int(number)
        if batch.answers[place] is None:
            batch.answers[place] = msg
            batch.left -= 1
            if not batch.left and not batch.done.done():
                batch.done.set_result(None)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: those who wait for it get it all the same


def _read(msg: Msg) -> dict[str, Any]:
    if _status(msg) == "503":
        raise Unheard("nobody answers for this stream")
    answer: dict[str, Any] = _decode(msg.data)
    return answer


def _status(msg: Msg) -> str | None:
    headers: Mapping[str, str] = msg.headers or {}
    return headers.get("Status")


def _fail(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_exception(Unavailable("the connection to the server was cut"))


def _forbidden(complaint: str) -> str:
    return (
        f"our user may not do this: allow it to publish to $JS.API.>, $JS.ACK.> and the"
        f" mailboxes, and to subscribe to _INBOX.> ({complaint})"
    )
