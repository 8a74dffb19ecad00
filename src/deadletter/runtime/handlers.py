"""Handlers, sync or async, adapted once at registration."""

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import reduce, wraps
from inspect import iscoroutinefunction
from threading import Barrier
from typing import Any, Final, Protocol, TypeAlias, get_type_hints, runtime_checkable

import msgspec
from msgspec import Struct

from deadletter.core.errors import ConfigError, Malformed, Unavailable
from deadletter.core.message import Delivery, Message
from deadletter.ports import Clock, Source

from .deliveries import ClaimedDelivery, HandlerNote
from .watchdog import end_if_wrecked, guard_this_thread

Handler: TypeAlias = Callable[[Delivery], Awaitable[object]]
Middleware: TypeAlias = Callable[[Handler], Handler]


@runtime_checkable
class AroundSource(Protocol):
    """Middleware that goes around receiving and settling as well."""

    def around(self, source: Source, clock: Clock) -> Source:
        """Return what is received from and settled with instead."""


class Raised(Struct, frozen=True):
    """An exception of a sync handler, carried over from its thread."""

    error: BaseException


def as_async(handler: Callable[..., object], threads: Executor) -> Handler:
    """
    Make any handler awaitable.

    A sync handler runs on `threads` and cannot be interrupted: when it overstays
    its time limit we stop waiting, but its thread runs on.
    """
    if is_async(handler):
        return handler  # type: ignore[return-value]

    def run(
        delivery: Delivery, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[object]
    ) -> None:
        # Errors are carried as values: some (StopIteration) do not survive being
        # set on a future.
        try:
            answer = handler(delivery)
        except BaseException as error:  # noqa: BLE001 -- handlers may raise anything
            answer = Raised(error)
        with suppress(RuntimeError):  # the event loop has closed: nobody waits
            loop.call_soon_threadsafe(_set, ended, answer)

    def run_guarded(*args: Any) -> None:
        try:
            run(*args)
        except BaseException as error:
            # Ours, not the handler's: its delivery would be held for ever.
            end_if_wrecked(error)
            raise

    @wraps(handler)
    async def on_thread(delivery: Delivery) -> object:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[object] = loop.create_future()
        threads.submit(context.run, run_guarded, delivery, loop, ended)
        answer = await ended
        if isinstance(answer, Raised):
            raise answer.error
        return answer

    return on_thread


def _set(ended: asyncio.Future[object], answer: object) -> None:
    if not ended.done():
        ended.set_result(answer)


def started_threads(count: int, name: str) -> ThreadPoolExecutor:
    """
    Start all threads of a pool now: later there may be no room for them.

    A pool that cannot start one takes the call all the same, and whoever calls would
    think that it had failed.
    """
    threads = ThreadPoolExecutor(count, name, initializer=guard_this_thread)
    together = Barrier(count + 1)
    try:
        for _ in range(count):
            threads.submit(together.wait)
    except RuntimeError as error:
        together.abort()
        threads.shutdown(wait=False, cancel_futures=True)
        raise Unavailable(
            f"{count} threads for handlers could not be started ({error}): use fewer "
            "slots, or raise the limits of this process"
        ) from error
    together.wait()
    return threads


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether calling it gives something to await."""
    if iscoroutinefunction(handler):
        return True
    return iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def wrap(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Put middleware around a handler; the first listed is the outermost."""
    return reduce(lambda inner, layer: layer(inner), reversed(middleware), handler)


def around(source: Source, middleware: Sequence[Middleware], clock: Clock) -> Source:
    """Put middleware around a source, where it wants to be; else it stays itself."""
    for layer in reversed(middleware):
        if isinstance(layer, AroundSource):
            source = layer.around(source, clock)
    return source


LONGEST_LINE: Final = 8 * 1024  # characters

_current: ContextVar["Context"] = ContextVar("deadletter_context")


class Context:
    """
    The delivery being worked on.

    A handler gets it by taking a second parameter annotated with `Context`.
    """

    __slots__ = ("_clock", "_held", "keeps_results")

    def __init__(self, held: ClaimedDelivery, clock: Clock, *, keeps_results: bool = False) -> None:
        self.keeps_results = keeps_results  # somebody can see what a handler returns
        self._held = held
        self._clock = clock

    @classmethod
    def current(cls) -> "Context":
        """Return the context of the handler that is running here."""
        return _current.get()

    def enter(self) -> None:
        """Become the current context of this task."""
        _current.set(self)

    @property
    def delivery(self) -> Delivery:
        """Return the delivery itself, with its message and the story so far."""
        return self._held.delivery

    @property
    def attempt(self) -> int:
        """Return which attempt this is, counting from 1."""
        return self.delivery.attempt

    @property
    def message_id(self) -> str:
        """Return the id its producer gave the message."""
        return self.delivery.message.id

    def beat(self) -> None:
        """
        Say that the work is getting on.

        Matters to handlers registered with `heartbeat=`: one that does not beat
        for that long is taken for stuck, and its lease is not extended.
        """
        self._held.beat(self._clock.monotonic())

    def heard(self, noted: HandlerNote | None) -> None:
        """Pass on a sign of life, or a note, from the handler's own process."""
        self.beat()
        if noted is not None:
            self._held.note(noted)

    def progress(self, value: object) -> None:
        """
        Say how far the work has got: a number, or anything that is JSON.

        Counts as a beat. BullMQ shows it as the job's progress; with other engines it
        is an event.
        """
        self.beat()
        self._held.note(HandlerNote(progress=_as_json(value)))

    def log(self, text: str) -> None:
        """
        Write a line to the log of this message.

        Counts as a beat. BullMQ shows it among the job's logs; with other engines it
        is an event.
        """
        self.beat()
        self._held.note(HandlerNote(line=text[:LONGEST_LINE]))


def _as_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            "progress must be a number or another value that is JSON, got"
            f" {type(value).__name__}: {error}"
        ) from error


# What a handler's first parameter is annotated with decides what it is given: a
# Struct, dataclass, TypedDict, dict or pydantic model is decoded from JSON and
# validated, `bytes` and `str` are handed over as they are, `Message` and
# `Delivery` bring everything. A body that does not fit is Malformed: a dead
# letter, without a retry.

Decode: TypeAlias = Callable[[Delivery], object]
JSON = "application/json"

_BYTES: Final = (bytes, bytearray, memoryview)
_encoder: Final = msgspec.json.Encoder()


def typed(function: Callable[..., Any]) -> Callable[[Delivery], Any]:
    """Return the function, called with what its parameters ask for."""
    parameters = _parameters(function)
    decode = _decoder(parameters[0][1])
    if len(parameters) == 1:
        if decode is _delivery:
            return function
        return lambda delivery: function(decode(delivery))
    name = parameters[1][0]
    return lambda delivery: function(decode(delivery), **{name: Context.current()})


def can_read(function: Callable[..., Any], delivery: Delivery) -> bool:
    """Return whether the body fits what the function asks for; it is not called."""
    try:
        _decoder(_parameters(function)[0][1])(delivery)
    except Exception:  # noqa: BLE001 -- a validator of theirs may raise anything
        return False
    return True


def encode(body: object) -> tuple[bytes, str | None]:
    """Return the bytes of a body and their content type."""
    if type(body) is not dict:  # as most are
        if isinstance(body, _BYTES):
            return bytes(body), None
        if isinstance(body, str):
            return _encoded(body), "text/plain"
        dump = getattr(body, "model_dump_json", None)
        if dump is not None:
            return dump().encode(), JSON
    try:
        return _encoder.encode(body), JSON
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"a body of type {type(body).__name__} cannot be sent: {error}. "
            "Send bytes, text, a Struct, dataclass, TypedDict, dict or pydantic model."
        ) from error


def encode_result(value: object) -> bytes | None:
    """Return what a handler returned as JSON; None if there is no JSON for it."""
    try:
        body, content_type = encode(value)
    except ConfigError:
        return None  # the handler is done, whatever it returned
    if content_type == JSON:
        return body
    try:
        return _encoder.encode(body.decode() if content_type else body)
    except UnicodeDecodeError:
        return None


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the body is text that is not Unicode: character {error.start + 1} is"
            " half a surrogate pair. Send such content as bytes."
        ) from error


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    name = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConfigError(
            f"the annotations of handler {name} cannot be read: {error}. Types that "
            "a handler asks for must be defined at module level, above it."
        ) from error
    found = [
        (p.name, hints.get(p.name, Any))
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if not found or len(found) > 2 or (len(found) == 2 and found[1][1] is not Context):
        raise ConfigError(
            f"handler {name} must take the body and, if it wants, a Context: "
            "async def handle(order: Order, context: Context)"
        )
    return found


def _decoder(wanted: Any) -> Decode:
    if wanted is Delivery:
        return _delivery
    if wanted is Message:
        return lambda delivery: delivery.message
    if wanted is bytes:
        return lambda delivery: delivery.message.body
    if wanted is str:
        return _text
    if wanted is Any:
        return _anything
    validate = getattr(wanted, "model_validate_json", None)
    if validate is not None:
        return lambda delivery: _fit(validate, delivery.message.body)
    try:
        read = msgspec.json.Decoder(wanted).decode
        info = msgspec.inspect.type_info(wanted)
    except TypeError as error:
        raise ConfigError(f"cannot decode a body into {wanted!r}: {error}") from error
    if isinstance(info, msgspec.inspect.CustomType):
        raise ConfigError(
            f"cannot decode a body into {wanted!r}: use a Struct, dataclass, "
            "TypedDict, dict or pydantic model, or take the bytes"
        )
    return lambda delivery: _fit(read, delivery.message.body)


def _delivery(delivery: Delivery) -> Delivery:
    return delivery


def _text(delivery: Delivery) -> str:
    return str(_fit(bytes.decode, delivery.message.body))


def _anything(delivery: Delivery) -> object:
    message = delivery.message
    if message.content_type == JSON:
        return _fit(msgspec.json.decode, message.body)
    return message.body


def _fit(read: Callable[[bytes], Any], body: bytes) -> Any:
    # ValueError covers msgspec, pydantic and Unicode; deep nesting ends in a
    # RecursionError, and none of them may look like trouble worth a retry.
    try:
        return read(body)
    except (ValueError, RecursionError, OverflowError) as error:
        raise Malformed(f"the body does not fit the handler: {error}") from error
