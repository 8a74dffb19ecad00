"""Handlers that do to their process what handlers should not."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from msgspec import Struct

from deadletter.core.errors import GiveUp, Ignore, LogicalFailure, RetryLater
from deadletter.core.message import Delivery, Message
from deadletter.runtime.handlers import Context


class Order(Struct):
    id: int


class NoFunds(Exception):
    """Wants more than a text to be made, and has a code."""

    def __init__(self, account: str, *, code: str) -> None:
        super().__init__(f"no funds on {account}")
        self.code = code


class Shy(Exception):
    """Says something else than what it was made with."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code

    def __str__(self) -> str:
        return f"answered {self.status_code}"


class Picky(Exception):
    """Cannot be made twice."""

    def __new__(cls, *args: object) -> Self:
        if not args or not callable(args[0]):
            raise TypeError("I want a callable")
        return super().__new__(cls, *args)

    def __str__(self) -> str:
        return "picky"


def echo(message: Message) -> bytes:
    return message.body


def text(body: str) -> str:
    return body.upper()


def order(order: Order) -> dict[str, int]:
    return {"id": order.id + 1}


def pid(body: bytes) -> str:
    return str(os.getpid())


async def pid_later(body: bytes) -> str:
    await asyncio.sleep(0.01)
    return str(os.getpid())


def unsendable(body: bytes) -> object:
    return object()


def noisy(body: bytes) -> str:
    print("on stdout")
    sys.stdout.flush()
    os.write(1, b"\x00\x00\x00\x05hello")
    os.write(2, b"and stderr")
    return "done"


def attempt(body: bytes, context: Context) -> str:
    return f"{context.attempt} {context.message_id} {Context.current() is context}"


async def attempt_later(body: bytes, context: Context) -> str:
    await asyncio.sleep(0)
    return f"{context.attempt} {context.message_id} {Context.current() is context}"


def beats(body: bytes, context: Context) -> None:
    for _ in range(50):
        context.beat()
        time.sleep(0.01)


def notes(body: bytes, context: Context) -> dict[str, int]:
    context.progress(50)
    context.log("half of it")
    return {"sum": 2}


def dies(delivery: Delivery) -> None:
    how: dict[bytes, Any] = {
        b"segfault": lambda: ctypes.string_at(0),
        b"abort": os.abort,
        b"exit": lambda: os._exit(3),
        b"kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        b"fine": lambda: None,
    }
    how[delivery.message.body]()


def dies_leaving_a_child(body: bytes) -> None:
    _leave_behind(body, lambda: None)


def dies_leaving_a_stranger(body: bytes) -> None:
    _leave_behind(body, os.setsid)


def _leave_behind(note: bytes, first: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:  # it keeps our socket open
        first()
        time.sleep(30)
        os._exit(0)
    with open(note.decode(), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(child))
    os._exit(7)


def hangs(body: bytes) -> None:
    _start_another(body)
    time.sleep(60)


def hangs_deaf(body: bytes) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    _start_another(body)
    time.sleep(60)


def hangs_in_c(body: bytes) -> None:
    _start_another(body)
    ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock: no thread can run


def _start_another(note: bytes) -> None:
    child = subprocess.Popen(["sleep", "60"])
    with open(note.decode(), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(f"{os.getpid()} {child.pid}")


def devours(body: bytes) -> None:
    if body == b"fine":
        return
    taken = []
    while True:
        taken.append(bytearray(16 * 1024 * 1024))


def raises(delivery: Delivery) -> None:
    what: dict[bytes, Any] = {
        b"value": lambda: ValueError("not a number"),
        b"key": lambda: KeyError("missing"),
        b"refused": lambda: ConnectionRefusedError(111, "Connection refused"),
        b"funds": lambda: NoFunds("42", code="INSUFFICIENT_FUNDS"),
        b"shy": lambda: Shy(503),
        b"picky": lambda: Picky(print),
        b"local": _local_error,
        b"exit": lambda: SystemExit(3),
        b"interrupt": KeyboardInterrupt,
        b"cancelled": asyncio.CancelledError,
        b"surrogate": lambda: ValueError("half \ud800 a character"),
        b"caused": _caused,
        b"later": lambda: RetryLater(30.0, "not yet"),
        b"give up": lambda: GiveUp("hopeless"),
        b"ignore": lambda: Ignore("nothing to do"),
        b"logical": lambda: LogicalFailure("no such customer"),
    }
    error = what[delivery.message.body]()
    raise error


async def raises_later(delivery: Delivery) -> None:
    await asyncio.sleep(0)
    raises(delivery)


def _local_error() -> Exception:
    class Odd(ConnectionResetError):
        pass

    return Odd("reset by somebody")


def _caused() -> Exception:
    error = NoFunds("7", code="X")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


def waits(body: bytes) -> str:
    time.sleep(0.3)
    return threading.current_thread().name


NOT_A_HANDLER = 42
